package kiel

import (
	"strings"
	"unicode/utf8"
)

// CheckGroup returns an error wrapping ErrInvalidName unless name may be a group's: a text in UTF-8 that is not empty, for which
// [GroupZnode] is no longer than 249 bytes. Kafka accepts all of them, such as "team/app", "my group" and "größe".
func CheckGroup(name string) error {
	switch {
	case name == "":
		return invalid("group", name, "is empty")
	case len(name) > maxName:
		return invalid("group", name, "has %d bytes, more than %d", len(name), maxName)
	case !utf8.ValidString(name):
		return invalid("group", name, "is not UTF-8")
	}
	if n := len(GroupZnode(name)); n > maxName {
		return invalid("group", name, "has %d bytes as a znode's name, in which %%XX is a byte that ZooKeeper does not take, and that is more than %d", n, maxName)
	}
	return nil
}

// GroupZnode returns the name of the znode below /kiel/groups of the group with this name. It is the group's name, except that
// what the name of a znode can't hold is escaped: %XX takes the place of each of its bytes, with digits and A to F. A slash is
// escaped, a character that session.CheckPath refuses (controls, private use, U+FFF0 and above, so emoji, too), a % that two
// hexadecimal digits follow, and the names "." and "..". Members of Python kiel escape nothing, so they share a group only if its
// name needs no escape. Two groups never have the same znode. The group's name must be one that [CheckGroup] accepts.
func GroupZnode(group string) string {
	if group == "." || group == ".." {
		return strings.ReplaceAll(group, ".", "%2E")
	}
	var b strings.Builder
	done := 0 // how much of group is in b
	for i, r := range group {
		if r != '/' && !refusedInPaths(r) && !isEscape(group[i:]) {
			continue
		}
		_, size := utf8.DecodeRuneInString(group[i:])
		b.WriteString(group[done:i])
		done = i + size
		for _, c := range []byte(group[i:done]) {
			const digits = "0123456789ABCDEF"
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		}
	}
	if done == 0 {
		return group
	}
	b.WriteString(group[done:])
	return b.String()
}

// GroupOfZnode is the reverse of [GroupZnode], for programs that list the children of /kiel/groups. ok is false for a znode that
// is no group's of this library, such as "%41": the group "A" has the znode "A", and the group "%41" the znode "%2541". Such a
// znode may be that of a group of Python kiel alone.
func GroupOfZnode(znode string) (group string, ok bool) {
	if len(znode) > maxName {
		return "", false
	}
	b := make([]byte, 0, len(znode))
	for i := 0; i < len(znode); i++ {
		if !isEscape(znode[i:]) {
			b = append(b, znode[i])
			continue
		}
		b = append(b, unhex(znode[i+1])<<4|unhex(znode[i+2]))
		i += 2
	}
	group = string(b)
	if CheckGroup(group) != nil || GroupZnode(group) != znode {
		return "", false
	}
	return group, true
}

// refusedInPaths reports whether ZooKeeper refuses a path with r. A test compares it with session.CheckPath.
func refusedInPaths(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xe000 && r <= 0xf8ff || r >= 0xfff0
}

// isEscape reports whether s begins with a % and two hexadecimal digits.
func isEscape(s string) bool {
	return len(s) > 2 && s[0] == '%' && unhex(s[1]) < 16 && unhex(s[2]) < 16
}

// unhex returns the value of a hexadecimal digit, and 16 for any other byte.
func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}
