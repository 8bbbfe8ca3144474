package compose_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kielgo/kiel/status"
	"github.com/kielgo/kiel/test/wait"
)

// docker-compose.yml, as it is, on a Docker Engine: Debian's, as root, with the storage driver vfs. The Dockerfile is built, its
// networks, names, ports, volumes, health checks and scaling are Docker's.
//
// It leaves out what can't be pulled: images are stand-ins with the machine's own Go, Java and shell, and with scripts that take
// from the environment what those of ZooKeeper's and Kafka's images take. Grafana's is a server of files, so nothing of it is
// tried but the container: TestGrafanaIsProvisioned checks what Grafana would read.
func TestOnDockerEngine(t *testing.T) {
	if !*full {
		t.Log("left to make soak: see -full")
		return
	}
	all := services(t)
	e := startEngine(t)
	e.loadImages(all)
	before := e.left()

	e.compose("up", "--detach", "--build")
	e.healthy(all, all["consumer"].Deploy.Replicas)
	for service, own := range written(t) {
		for _, port := range own.Ports { // 127.0.0.1:2181:2181
			if _, err := e.talk("127.0.0.1:"+strings.Split(port, ":")[1], ""); err != nil {
				t.Errorf("%s can't be reached from outside at %s: %v", service, port, err)
			}
		}
	}

	e.compose("up", "--detach", "--scale", "consumer=6")
	e.healthy(all, 6)
	e.share([]int{2, 2, 2, 2, 2, 2})
	consumers := strings.Fields(e.must(e.command(e.docker("ps", "--quiet", "--filter", "label=com.docker.compose.service=consumer")...)))
	e.must(e.command(e.docker("kill", consumers[0])...))
	e.share([]int{2, 2, 2, 3, 3})

	e.compose("stop", "consumer")
	if ended := e.containers("Exited (0)")["consumer"]; ended != 5 {
		t.Errorf("%d of 5 consumers ended in good order", ended)
	}
	e.compose("down")
	if after := e.left(); after != before {
		t.Errorf("after down there is\n%s\nbefore up there was\n%s", after, before)
	}
}

// left returns the containers, networks and volumes that there are.
func (e *engine) left() string {
	e.t.Helper()
	var all []string
	for _, list := range [][]string{{"ps", "--all", "--quiet"}, {"network", "ls", "--format", "{{.Name}}"}, {"volume", "ls", "--quiet"}} {
		all = append(all, strings.Fields(e.must(e.command(e.docker(list...)...)))...)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// healthy waits until each service has its containers and all pass their health checks.
func (e *engine) healthy(all map[string]service, consumers int) {
	e.t.Helper()
	want := map[string]int{}
	for name := range all {
		want[name] = 1
	}
	want["consumer"] = consumers
	var healthy, running map[string]int
	wait.Until(e.t, 3*time.Minute, func() bool {
		healthy, running = e.containers("(healthy)"), e.containers("")
		return maps.Equal(healthy, want) && maps.Equal(running, want)
	}, func() string { return fmt.Sprintf("healthy are %v of %v, want %v", healthy, running, want) })
}

// share waits until Prometheus finds as many consumers as there are numbers, all of them say that these are the group's members,
// and they own as many partitions as the numbers say, together each once.
func (e *engine) share(want []int) {
	e.t.Helper()
	const partitions = 12 // what the producer creates
	var got string
	wait.Until(e.t, 2*time.Minute, func() bool {
		var numbers []int
		owned := map[string]bool{}
		got = ""
		for _, address := range e.targets() {
			g, err := e.status(address)
			if err != nil {
				got += fmt.Sprintf("%s: %v\n", address, err)
				continue
			}
			own := 0
			for _, p := range g.Partitions {
				if p.State == status.Owned {
					owned[fmt.Sprint(p.Topic, p.Partition)] = true
					own++
				}
			}
			got += fmt.Sprintf("%s: %s owns %d, members %v\n", address, g.Self.Name, own, g.Members)
			if len(g.Members) == len(want) {
				numbers = append(numbers, own)
			}
		}
		slices.Sort(numbers)
		return slices.Equal(numbers, want) && len(owned) == partitions
	}, func() string { return fmt.Sprintf("want %v, have\n%s", want, got) })
}

// get asks somebody whom the engine's machine can connect to.
func (e *engine) get(address, path string, into any) error {
	text, err := e.talk(address, "GET "+path+` HTTP/1.0\r\n\r\n`)
	if err != nil {
		return err
	}
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		return fmt.Errorf("%s%s: %w", address, path, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s", address, path, answer.Status)
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// targets returns the addresses that Prometheus got from Docker's name server and scrapes with success.
func (e *engine) targets() []string {
	e.t.Helper()
	var answer struct {
		Data struct {
			Active []struct{ ScrapeURL, Health string } `json:"activeTargets"`
		}
	}
	if err := e.get("127.0.0.1:9090", "/api/v1/targets?state=active", &answer); err != nil {
		e.t.Fatal(err)
	}
	var addresses []string
	for _, target := range answer.Data.Active {
		u, err := url.Parse(target.ScrapeURL)
		if err != nil {
			e.t.Fatal(err)
		}
		if target.Health == "up" {
			addresses = append(addresses, u.Host)
		}
	}
	return addresses
}

func (e *engine) status(address string) (*status.Group, error) {
	var g status.Group
	err := e.get(address, "/status", &g)
	if err == nil && g.Self == nil {
		err = fmt.Errorf("not a member's status: %+v", g)
	}
	return &g, err
}
