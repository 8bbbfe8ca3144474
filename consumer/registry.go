package consumer

import gometrics "github.com/rcrowley/go-metrics"

// silentRegistry keeps no gometrics. The meters of go-metrics share a goroutine
// that never ends; a library should not start one that nobody asked for.
type silentRegistry struct{}

func (silentRegistry) Each(func(string, any))            {}
func (silentRegistry) Get(string) any                    { return nil }
func (silentRegistry) GetAll() map[string]map[string]any { return nil }
func (silentRegistry) Register(string, any) error        { return nil }
func (silentRegistry) RunHealthchecks()                  {}
func (silentRegistry) Unregister(string)                 {}
func (silentRegistry) UnregisterAll()                    {}
func (silentRegistry) GetOrRegister(_ string, metric any) any {
	switch metric.(type) {
	case func() gometrics.Meter, gometrics.Meter:
		return gometrics.NilMeter{}
	case func() gometrics.Histogram, gometrics.Histogram:
		return gometrics.NilHistogram{}
	default:
		return gometrics.NilCounter{}
	}
}
