// Command setup gets what the tests need: packages of the system, servers and Python libraries. See package software.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kielgo/kiel/test/servers/software"
)

func main() {
	clean := flag.Bool("clean", false, "remove the cache instead")
	old := flag.Bool("old", false, "get the old versions of ZooKeeper, which only the soak needs, instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	act := software.Install
	switch {
	case *clean:
		act = software.Clean
	case *old:
		act = software.InstallOld
	}
	err := act(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "setup:", err)
		os.Exit(1)
	}
}
