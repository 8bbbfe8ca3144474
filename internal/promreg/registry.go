package promreg

import (
	"reflect"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Registry is the Registerer of parts that one member creates again and again. Their metrics are registered from the first part
// on until Close, and each part counts on where the one before ended. Any goroutine may call its methods.
type Registry struct {
	reg   prometheus.Registerer // where metrics are registered; nil for nowhere
	group string                // the value of the label group

	mu    sync.Mutex
	parts map[reflect.Type]part
	shown []*Set
}

// part holds the metrics of a part, and their set.
type part struct {
	metrics any
	set     *Set
}

// NewRegistry returns a Registry that registers metrics on reg, with the label group. With a nil reg it keeps metrics and
// registers none.
func NewRegistry(reg prometheus.Registerer, group string) *Registry {
	return &Registry{reg: reg, group: group, parts: make(map[reflect.Type]part)}
}

// kept returns the metrics of type M, made by build at the first call.
func kept[M any](r *Registry, build func(*Set) M) (M, *Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kind := reflect.TypeFor[M]()
	if p, ok := r.parts[kind]; ok {
		if m, ok := p.metrics.(M); ok {
			return m, p.set
		}
	}
	s := newSet(r.reg, r.group, r)
	m := build(s)
	r.parts[kind] = part{m, s}
	return m, s
}

// show registers a set, unless it is registered.
func (r *Registry) show(s *Set) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.shown, s) {
		return nil
	}
	if err := register(r.reg, s); err != nil {
		return err
	}
	r.shown = append(r.shown, s)
	return nil
}

// Sets returns the sets that are registered.
func (r *Registry) Sets() []*Set {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.shown)
}

// Close unregisters everything. It may be called more than once.
func (r *Registry) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.shown {
		unregister(r.reg, s)
	}
	r.shown = nil
}

// Register implements prometheus.Registerer, for metrics that belong to no part of a member and lack the label group.
func (r *Registry) Register(c prometheus.Collector) error { return r.withGroup().Register(c) }

// MustRegister implements prometheus.Registerer.
func (r *Registry) MustRegister(all ...prometheus.Collector) { r.withGroup().MustRegister(all...) }

// Unregister implements prometheus.Registerer.
func (r *Registry) Unregister(c prometheus.Collector) bool { return r.withGroup().Unregister(c) }

// withGroup puts the label group on what is registered.
func (r *Registry) withGroup() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{labelGroup: r.group}, r.reg)
}
