package promreg

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// nativeReset is the least time for which a native histogram keeps its resolution before it is reset because it has too many
// buckets.
const nativeReset = time.Hour

// labelGroup is the label that all metrics have.
const labelGroup = "group"

// Set holds the metrics of one part of a member. All of them are registered together, or none. It is a prometheus.Registerer for
// the parts below.
type Set struct {
	registry   *prometheus.Registry
	collectors []prometheus.Collector
	group      string
	target     prometheus.Registerer // where the set is registered; nil for nowhere
	owner      *Registry             // the Registry that registers the set; nil if Show does
}

// Labeller is a collector that can return its metrics with more labels.
type Labeller interface {
	With(labels prometheus.Labels) prometheus.Collector
}

// New returns the metrics of a part, which build makes, and their set. If reg is a Registry that has metrics of type M, New
// returns those, with their counts. All have the Labels of the set.
func New[M any](reg prometheus.Registerer, group string, build func(*Set) M) (M, *Set) {
	if r, ok := reg.(*Registry); ok {
		return kept(r, build)
	}
	s := newSet(reg, group, nil)
	return build(s), s
}

func newSet(target prometheus.Registerer, group string, r *Registry) *Set {
	return &Set{registry: prometheus.NewRegistry(), group: group, target: target, owner: r}
}

// Labels returns the constant labels with which each metric of the set must be created. A Registerer that added them would do so
// at each scrape, for half the cost of all the rest.
func (s *Set) Labels() prometheus.Labels { return prometheus.Labels{labelGroup: s.group} }

// LabelsOf returns the Labels of reg if that is a Set, and else none.
func LabelsOf(reg prometheus.Registerer) prometheus.Labels {
	if s, ok := reg.(*Set); ok {
		return s.Labels()
	}
	return nil
}

// Complete says that the set has all its metrics. A Registry then registers it.
func (s *Set) Complete() error {
	if s.owner == nil {
		return nil
	}
	return s.owner.show(s)
}

// Show registers the set until hide is called, unless a Registry registers it. It returns an error, and registers nothing, if a
// living part has the same metrics.
func (s *Set) Show() (hide func(), err error) {
	if s.owner != nil {
		return func() {}, nil
	}
	if err := register(s.target, s); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { unregister(s.target, s) }), nil
}

func unregister(reg prometheus.Registerer, s *Set) {
	if reg != nil {
		reg.Unregister(s)
	}
}

func register(reg prometheus.Registerer, s *Set) error {
	if reg == nil {
		return nil
	}
	err := reg.Register(s)
	if _, taken := errors.AsType[prometheus.AlreadyRegisteredError](err); taken {
		return fmt.Errorf("register metrics: the Registerer already has the metrics of another living member of this group: give each member a Registerer "+
			`of its own, for example prometheus.WrapRegistererWith(prometheus.Labels{"client": name}, registerer): %w`, err)
	}
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// Collectors returns what was registered in the set.
func (s *Set) Collectors() []prometheus.Collector { return slices.Clone(s.collectors) }

// Register implements prometheus.Registerer. A Labeller is registered with the Labels of the set, everything else must have them.
func (s *Set) Register(c prometheus.Collector) error {
	if l, ok := c.(Labeller); ok {
		c = l.With(s.Labels())
	}
	if err := s.registry.Register(c); err != nil {
		return err
	}
	s.collectors = append(s.collectors, c)
	return nil
}

// MustRegister implements prometheus.Registerer.
func (s *Set) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

// Unregister implements prometheus.Registerer. A set loses nothing.
func (s *Set) Unregister(prometheus.Collector) bool { return false }

// Describe implements prometheus.Collector.
func (s *Set) Describe(ch chan<- *prometheus.Desc) { s.registry.Describe(ch) }

// Collect implements prometheus.Collector.
func (s *Set) Collect(ch chan<- prometheus.Metric) { s.registry.Collect(ch) }
