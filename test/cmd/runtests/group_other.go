//go:build !unix

package main

import "os/exec"

func inGroup(*exec.Cmd) {}

func interrupt(cmd *exec.Cmd) error { return cmd.Process.Kill() }

func kill(cmd *exec.Cmd) error { return cmd.Process.Kill() }

func niced(args []string) []string { return args }
