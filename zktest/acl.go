package zktest

import (
	"crypto/sha1" //nolint:gosec // ZooKeeper's digest scheme is SHA-1
	"encoding/base64"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The permissions of an [ACL].
const (
	PermRead int32 = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	PermAll int32 = 31
)

// ACL is an entry of a znode's access control list.
type ACL struct {
	Perms  int32  // a set of permissions
	Scheme string // world, auth, digest, ip
	ID     string // the identity, in the form of the scheme
}

// identity is an identity that a connection has proved in one scheme.
type identity struct{ scheme, id string }

// openACL returns a list that allows everything to everybody.
func openACL() []ACL { return []ACL{{Perms: PermAll, Scheme: "world", ID: "anyone"}} }

// digestID is the digest scheme's id of "user:password".
func digestID(userPassword string) string {
	user, _, _ := strings.Cut(userPassword, ":")
	sum := sha1.Sum([]byte(userPassword)) //nolint:gosec // as ZooKeeper
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// permits reports whether the list acl gives the permission to a connection with the identities who.
func permits(acl []ACL, perm int32, who []identity) bool {
	if len(acl) == 0 || slices.ContainsFunc(who, func(i identity) bool { return i.scheme == "super" }) {
		return true
	}
	for _, a := range acl {
		if a.Perms&perm == 0 {
			continue
		}
		if a.Scheme == "world" && a.ID == "anyone" {
			return true
		}
		for _, i := range who {
			if i.scheme == a.Scheme && matches(i, a.ID) {
				return true
			}
		}
	}
	return false
}

// matches reports whether an ACL entry's ID is that of the identity, whose scheme it has.
func matches(i identity, expr string) bool {
	switch i.scheme {
	case "digest":
		return i.id == expr
	case "ip":
		prefix, ok := parsePrefix(expr)
		addr, err := netip.ParseAddr(i.id)
		return ok && err == nil && prefix.Contains(addr)
	default:
		return false
	}
}

// parsePrefix reads the ip scheme's "address" or "address/bits".
func parsePrefix(expr string) (netip.Prefix, bool) {
	text, bitsText, cut := strings.Cut(expr, "/")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Prefix{}, false
	}
	bits := addr.BitLen()
	if cut {
		if bits, err = strconv.Atoi(bitsText); err != nil || bits < 0 || bits > addr.BitLen() {
			return netip.Prefix{}, false
		}
	}
	return netip.PrefixFrom(addr, bits), true
}

// expandACL checks the list of a create or setACL. It leaves out duplicates, and replaces "auth" by the caller's own identities.
func expandACL(list []ACL, who []identity) ([]ACL, Error) {
	var out, seen []ACL
	for _, a := range list {
		if slices.Contains(seen, a) {
			continue
		}
		seen = append(seen, a)
		switch a.Scheme {
		case "world":
			if a.ID != "anyone" {
				return nil, ErrInvalidACL
			}
			out = append(out, a)
		case "auth":
			n := len(out)
			for _, i := range who {
				if i.scheme == "digest" {
					out = append(out, ACL{Perms: a.Perms, Scheme: i.scheme, ID: i.id})
				}
			}
			if len(out) == n {
				return nil, ErrInvalidACL
			}
		case "digest":
			if user, hash, ok := strings.Cut(a.ID, ":"); !ok || hash == "" || strings.Contains(hash, ":") {
				_ = user
				return nil, ErrInvalidACL
			}
			out = append(out, a)
		case "ip":
			if _, ok := parsePrefix(a.ID); !ok {
				return nil, ErrInvalidACL
			}
			out = append(out, a)
		default:
			return nil, ErrInvalidACL
		}
	}
	if len(out) == 0 {
		return nil, ErrInvalidACL
	}
	return out, 0
}

// maskACL hides the password hashes from a reader that has no admin right.
func maskACL(list []ACL) []ACL {
	out := slices.Clone(list)
	for i, a := range out {
		if a.Scheme == "digest" {
			user, _, _ := strings.Cut(a.ID, ":")
			out[i].ID = user + ":x"
		}
	}
	return out
}
