//go:build !linux

package kafkaconn

import (
	"syscall"
	"time"
)

func setUserTimeout(syscall.RawConn, time.Duration) error { return nil }
