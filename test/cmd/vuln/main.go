// Vuln runs govulncheck in each module that it is given, if the database of vulnerabilities can be reached. If not, it says that
// nothing was checked, and succeeds: a network that is closed is no fault of the code.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"
)

const (
	govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.9.0"
	database    = "https://vuln.go.dev"
	patience    = 15 * time.Second // for the database's first answer
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Stdout, cmp.Or(os.Getenv("GOVULNDB"), database), check, os.Args[1:]))
}

// run checks modules, all of them even if one fails, and returns the exit code.
func run(ctx context.Context, out io.Writer, db string, check func(ctx context.Context, module string) error, modules []string) (code int) {
	if err := reach(ctx, db); err != nil {
		fmt.Fprintf(out, "NOT CHECKED for known vulnerabilities: the database can't be reached: %v\n", err)
		return 0
	}
	for _, module := range modules {
		if err := check(ctx, module); err != nil {
			fmt.Fprintf(out, "govulncheck in %s: %v\n", module, err)
			code = 1
		}
	}
	return code
}

// reach asks for the index of the database; one that is a folder needs no network.
func reach(ctx context.Context, db string) error {
	if strings.HasPrefix(db, "file:") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, db+"/index/db.json", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close() // the status is all that is wanted
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", db, resp.Status)
	}
	return nil
}

// check runs govulncheck, which fails if the module calls something vulnerable.
func check(ctx context.Context, module string) error {
	cmd := exec.CommandContext(ctx, "go", "run", govulncheck, "./...")
	cmd.Dir, cmd.Stdout, cmd.Stderr = module, os.Stdout, os.Stderr
	return cmd.Run()
}
