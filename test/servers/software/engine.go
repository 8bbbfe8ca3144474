package software

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
)

// Engine returns the folder of a Docker Engine, its client and busybox. [Install] does not get them, since only one test needs
// them and they are large: Engine does when they are not there yet. Nothing starts, and the machine's own Docker, if it has one,
// is left alone.
func Engine(ctx context.Context, out io.Writer) (string, error) {
	if err := need(ctx, out, []tool{
		{"iptables (for names in Docker's networks)", []string{"iptables"}, iptables},
		{"apt-get (to get a Docker Engine with)", []string{"apt"}, apt},
	}); err != nil {
		return "", err
	}
	cache, err := Cache()
	if err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(cache, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := engine().install(ctx, out, cache); err != nil {
		return "", fmt.Errorf("install a Docker Engine: %w", err)
	}
	return find(engine())
}

// engine holds Docker as Debian has it.
func engine() part {
	return part{name: "engine", recipe: "debian/engine.txt", fill: debian}
}

func iptables(ctx context.Context) error { return run(ctx, "iptables", "--version") }
