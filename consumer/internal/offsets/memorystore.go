package offsets

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kielgo/kiel"
)

// MemoryStore is a Store in memory, for tests. The zero value is empty. It records all requests. Its exported fields make it slow
// or make it fail; they are set before the first request.
type MemoryStore struct {
	Delay      time.Duration            // the delay of each answer to Fetch
	BlockFetch chan struct{}            // Fetch waits until it is closed; nil for no wait
	Block      chan struct{}            // each request waits until it is closed; nil for no wait
	Slow       chan struct{}            // the answer to a commit waits until it is closed; nil for no wait
	Refuse     func(OffsetCommit) error // returns why a commit is not stored; nil stores all
	OnStored   func(OffsetCommit)       // called with each stored commit

	mu      sync.Mutex
	offsets map[kiel.Partition]Stored
	commits []map[kiel.Partition]int64
	fetches [][]kiel.Partition
}

// Fetch returns the stored offsets of ps.
func (s *MemoryStore) Fetch(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	s.wait(ctx)
	if s.BlockFetch != nil {
		select {
		case <-s.BlockFetch:
		case <-ctx.Done():
		}
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if s.Delay > 0 {
		<-time.After(s.Delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches = append(s.fetches, slices.Clone(ps))
	out := map[kiel.Partition]Stored{}
	for _, p := range ps {
		out[p] = s.get(p)
	}
	return out, nil
}

// Peek is Fetch.
func (s *MemoryStore) Peek(ctx context.Context, ps []kiel.Partition) (map[kiel.Partition]Stored, error) {
	return s.Fetch(ctx, ps)
}

// Commit stores the commits that are authorized and not refused.
func (s *MemoryStore) Commit(ctx context.Context, cs []OffsetCommit) map[kiel.Partition]error {
	s.wait(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[kiel.Partition]error{}
	sent := map[kiel.Partition]int64{}
	for _, c := range cs {
		err := cmp.Or(c.Authorize(), ctx.Err())
		if err == nil {
			sent[c.Partition] = c.Offset
			if s.Refuse != nil {
				err = s.Refuse(c)
			}
		}
		out[c.Partition] = err
		if err == nil {
			s.put(c)
		}
	}
	if s.Slow != nil {
		<-s.Slow
	}
	if len(sent) > 0 {
		s.commits = append(s.commits, sent)
	}
	return out
}

func (s *MemoryStore) wait(ctx context.Context) {
	if s.Block != nil {
		select {
		case <-s.Block:
		case <-ctx.Done():
		}
	}
}

func (s *MemoryStore) put(c OffsetCommit) {
	if s.offsets == nil {
		s.offsets = map[kiel.Partition]Stored{}
	}
	s.offsets[c.Partition] = Stored{
		Offset: c.Offset, TopicID: c.TopicID, Token: c.Token, Text: c.Text, Ours: true,
		LeaderEpoch: c.LeaderEpoch, FirstPartitions: c.FirstPartitions, Began: c.Began, Place: c.Place,
	}
	if s.OnStored != nil {
		s.OnStored(c)
	}
}

func (s *MemoryStore) get(p kiel.Partition) Stored {
	if f, ok := s.offsets[p]; ok {
		return f
	}
	return Stored{Offset: -1, LeaderEpoch: -1}
}

// Get returns the stored offset of p.
func (s *MemoryStore) Get(p kiel.Partition) Stored {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(p)
}

// Set stores offsets as another program would.
func (s *MemoryStore) Set(offsets map[kiel.Partition]Stored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.offsets == nil {
		s.offsets = map[kiel.Partition]Stored{}
	}
	maps.Copy(s.offsets, offsets)
}

// Clear deletes all offsets.
func (s *MemoryStore) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.offsets)
}

// Commits returns the offsets that were sent, one map for each request.
func (s *MemoryStore) Commits() []map[kiel.Partition]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commits)
}

// Fetches returns the partitions that were read, one slice for each request.
func (s *MemoryStore) Fetches() [][]kiel.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.fetches)
}
