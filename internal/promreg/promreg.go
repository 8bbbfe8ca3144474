// Package promreg keeps the Prometheus metrics of each part of a member together: it registers them when the part begins and
// unregisters them when it has ended.
package promreg

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Register registers c on reg and returns it, or returns the collector that is already registered under the same names and
// labels. With a nil reg it registers nothing. It does not block.
func Register[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	if reg == nil {
		return c, nil
	}
	err := reg.Register(c)
	if err == nil {
		return c, nil
	}
	if are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if old, ok := are.ExistingCollector.(C); ok {
			return old, nil
		}
	}
	return c, fmt.Errorf("register metrics: %w", err)
}

// Add puts a collector into a set and returns it. It panics if the set has one of the same name, which is a mistake in the code
// that builds the set.
func Add[C prometheus.Collector](s *Set, c C) C {
	s.MustRegister(c)
	return c
}

// Native returns opts for a histogram that has native buckets beside the classic ones, for servers that scrape them.
func Native(opts prometheus.HistogramOpts) prometheus.HistogramOpts {
	opts.NativeHistogramBucketFactor = 1.1
	opts.NativeHistogramMaxBucketNumber = 100
	opts.NativeHistogramMinResetDuration = nativeReset
	return opts
}
