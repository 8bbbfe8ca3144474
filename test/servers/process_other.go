//go:build !linux

package servers

import "syscall"

// diesWithParent can't be had outside of Linux: children outlive a test process that is killed.
func diesWithParent() *syscall.SysProcAttr { return nil }
