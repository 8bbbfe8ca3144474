package connect

import (
	"fmt"
	"runtime/debug"
)

// Version returns the version with which a command was installed.
func Version(command string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return command + " (unknown version)"
	}
	return fmt.Sprintf("%s %s (%s)", command, info.Main.Version, info.GoVersion)
}
