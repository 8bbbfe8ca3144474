package zktest

import (
	"strings"
	"unicode/utf8"
)

// validPath reports whether ZooKeeper allows a znode's path. ZooKeeper sees paths as UTF-16: a character outside of the basic
// plane is a pair of surrogates, and surrogates are refused.
func validPath(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	if path == "/" {
		return true
	}
	if !utf8.ValidString(path) {
		return false
	}
	for name := range strings.SplitSeq(path[1:], "/") {
		if name == "" || name == "." || name == ".." {
			return false
		}
	}
	return strings.IndexFunc(path, forbiddenRune) < 0
}

func forbiddenRune(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// parentOf returns the parent's path. ok is false if path has no slash or has a zero byte.
func parentOf(path string) (parent string, ok bool) {
	slash := strings.LastIndexByte(path, '/')
	if slash < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", false
	}
	if slash == 0 {
		return "/", true
	}
	return path[:slash], true
}

func nameOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// reserved reports whether a znode can't be deleted.
func reserved(path string) bool {
	return path == "/" || path == "/zookeeper" || path == "/zookeeper/quota" || path == "/zookeeper/config"
}
