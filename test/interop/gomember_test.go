package interop_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.uber.org/goleak"

	"github.com/kielgo/kiel/allocator"
	"github.com/kielgo/kiel/session"
)

// request and response are the lines that a member reads and writes, as told in member.py.
type request struct {
	Op         string             `json:"op"`
	Partitions map[string][]int32 `json:"partitions,omitempty"`
}

type response struct {
	Error      string                        `json:"error,omitempty"`
	Expired    bool                          `json:"expired,omitempty"` // of Python members only
	Members    []string                      `json:"members,omitempty"`
	Partitions []string                      `json:"partitions,omitempty"`
	Mapping    map[string]map[string][]int32 `json:"mapping,omitempty"`
}

// beMember is the main function of a Go member.
func beMember(args []string) (code int) {
	err := runMember(args[0], args[1], args[2], args[3], args[4:])
	if err == nil {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runMember(zookeeper, group, name, seed string, topics []string) error {
	var partitions map[string][]int32
	if err := json.Unmarshal([]byte(seed), &partitions); err != nil {
		return fmt.Errorf("seed: %w", err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	zk, err := session.New([]string{zookeeper}, session.Options{
		MinSessionTimeout: minSessionTimeout,
		Logger:            log,
	})
	if err != nil {
		return err
	}
	alloc, err := allocator.New(zk, group, name, allocator.Options{Seed: partitions, Topics: topics, Logger: log})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- zk.Run(ctx) }()
	go func() { done <- alloc.Run(ctx) }()
	if err = alloc.Ready(ctx); err == nil {
		err = serve(ctx, alloc)
	}
	cancel()
	return errors.Join(err, <-done, <-done)
}

func serve(ctx context.Context, alloc *allocator.PartitionAllocator) error {
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(response{}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var req request
		if err := json.Unmarshal(lines.Bytes(), &req); err != nil {
			return err
		}
		res, err := answer(ctx, alloc, req)
		if err != nil {
			res.Error = err.Error()
		}
		if err := out.Encode(res); err != nil {
			return err
		}
		if req.Op == "leave" {
			return nil
		}
	}
	return errors.New("end of input")
}

func answer(ctx context.Context, alloc *allocator.PartitionAllocator, req request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	switch req.Op {
	case "add":
		return response{}, alloc.AddPartitions(ctx, req.Partitions)
	case "remove":
		return response{}, alloc.RemovePartitions(ctx, req.Partitions)
	case "leave":
		return response{}, alloc.Stop(ctx)
	case "state":
		snapshot := alloc.Snapshot()
		res := response{Members: snapshot.Members, Mapping: snapshot.Mapping()}
		for _, p := range snapshot.Partitions {
			res.Partitions = append(res.Partitions, p.String())
		}
		return res, snapshot.Err
	}
	return response{}, fmt.Errorf("unknown op %q", req.Op)
}
