//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// inGroup has the child lead a process group, so that signals reach what it starts, too.
func inGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func interrupt(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }

func kill(cmd *exec.Cmd) error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// niced has a command run at the lowest priority.
func niced(args []string) []string { return append([]string{"nice", "-n", "19"}, args...) }
