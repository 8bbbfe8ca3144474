package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kielgo/kiel/consumer"
	"github.com/kielgo/kiel/test/bench/datapath"
)

// rest has n members do nothing for a time, each with a session of its own and one partition, and returns what the process used
// for that.
func (j job) rest(ctx context.Context, n int, span time.Duration) (datapath.Sample, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	open := make(chan int32, 100*n)
	failed := make(chan error, n)
	var members sync.WaitGroup
	for range n {
		members.Go(func() {
			failed <- withGroup(ctx, j, func(group *consumer.Group) error {
				err := group.Run(ctx, []string{j.topic}, func(_ context.Context, p *consumer.Partition) error {
					open <- p.ID()
					for range p.Messages() {
						return errors.New("there is a message")
					}
					return nil
				})
				return errors.Join(err, group.Close())
			})
		})
	}
	var sample datapath.Sample
	err := j.settled(ctx, n, open, failed)
	if err == nil {
		sample, err = pass(span)
	}
	leave()
	members.Wait()
	close(failed)
	for one := range failed {
		err = errors.Join(err, one)
	}
	return sample, err
}

// settled waits until no partition was opened for a while and each of n was.
func (j job) settled(ctx context.Context, n int, open <-chan int32, failed <-chan error) error {
	opened := map[int32]bool{}
	for {
		select {
		case id := <-open:
			opened[id] = true
		case err := <-failed:
			return fmt.Errorf("a member has left: %w", err)
		case <-time.After(3 * time.Second):
			if len(opened) == n {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pass returns what the process uses in a time.
func pass(span time.Duration) (datapath.Sample, error) {
	before, err := used()
	if err != nil {
		return datapath.Sample{}, err
	}
	began := time.Now()
	time.Sleep(span)
	after, err := used()
	return datapath.Sample{CPU: after - before, Elapsed: time.Since(began), Memory: peak()}, err
}
