package status

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
)

// MaxAddr is the length of the longest address at which a member answers /status, in bytes.
const MaxAddr = 64

var errAddr = errors.New("not http or https, host and port alone")

// CheckAddr returns an error unless addr is an address at which a member may say that it answers /status: "http://host:port" or
// "https://host:port", of MaxAddr bytes at most, without anything else.
func CheckAddr(addr string) error {
	if len(addr) > MaxAddr {
		return fmt.Errorf("the address has %d bytes, at most %d", len(addr), MaxAddr)
	}
	u, err := url.Parse(addr)
	if err != nil {
		return errAddr
	}
	host, port, err := net.SplitHostPort(u.Host)
	n, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || n == 0 || host == "" || u.Scheme != "http" && u.Scheme != "https" || addr != u.Scheme+"://"+u.Host {
		return fmt.Errorf("%.256q is %w", addr, errAddr)
	}
	return nil
}
