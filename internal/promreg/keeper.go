package promreg

import (
	"reflect"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Keeper is the Registerer of parts that one member creates again and again. Their metrics are registered from the first part on
// until Close, and each part counts on where the one before ended. Any goroutine may call its methods.
type Keeper struct {
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

// NewKeeper returns a Keeper that registers metrics on reg, with the label group. With a nil reg it keeps metrics and registers
// none.
func NewKeeper(reg prometheus.Registerer, group string) *Keeper {
	return &Keeper{reg: reg, group: group, parts: make(map[reflect.Type]part)}
}

// kept returns the metrics of type M, made by build at the first call.
func kept[M any](k *Keeper, build func(*Set) M) (M, *Set) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := reflect.TypeFor[M]()
	if p, ok := k.parts[kind]; ok {
		if m, ok := p.metrics.(M); ok {
			return m, p.set
		}
	}
	s := newSet(k.reg, k.group, k)
	m := build(s)
	k.parts[kind] = part{m, s}
	return m, s
}

// show registers a set, unless it is registered.
func (k *Keeper) show(s *Set) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.Contains(k.shown, s) {
		return nil
	}
	if err := register(k.reg, s); err != nil {
		return err
	}
	k.shown = append(k.shown, s)
	return nil
}

// Sets returns the sets that are registered.
func (k *Keeper) Sets() []*Set {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.shown)
}

// Close unregisters everything. It may be called more than once.
func (k *Keeper) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.shown {
		unregister(k.reg, s)
	}
	k.shown = nil
}

// Register implements prometheus.Registerer, for metrics that belong to no part of a member and lack the label group.
func (k *Keeper) Register(c prometheus.Collector) error { return k.withGroup().Register(c) }

// MustRegister implements prometheus.Registerer.
func (k *Keeper) MustRegister(all ...prometheus.Collector) { k.withGroup().MustRegister(all...) }

// Unregister implements prometheus.Registerer.
func (k *Keeper) Unregister(c prometheus.Collector) bool { return k.withGroup().Unregister(c) }

// withGroup puts the label group on what is registered.
func (k *Keeper) withGroup() prometheus.Registerer {
	return prometheus.WrapRegistererWith(prometheus.Labels{labelGroup: k.group}, k.reg)
}
