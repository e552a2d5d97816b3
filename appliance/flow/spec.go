package flow

import (
	"fmt"
	"strings"
)

// Kind is the kind of a channel.
type Kind string

// The kinds of channels.
const (
	KindQueue     Kind = "queue"
	KindBroadcast Kind = "broadcast"
	KindWatch     Kind = "watch"
	KindTicker    Kind = "ticker"
	KindSlots     Kind = "slots"
)

// Policy describes how a full channel behaves. The catalogue prints it.
type Policy string

// The overflow policies in use. A queue may declare another text.
const (
	RejectNew    Policy = "reject new"
	DropOldest   Policy = "drop oldest"
	Wait         Policy = "wait"
	WaitDeadline Policy = "wait with deadline"
	LastWins     Policy = "last write wins"
	Collapse     Policy = "collapse, keep latest"
	SkipCycle    Policy = "skip cycle"
	RetryOnce    Policy = "retry once, then drop"
	Merge        Policy = "missed ticks merge"
)

// HTTP is the producer name of the request handlers. Channels that they feed close when the service
// starts to drain ([Catalog.CloseFedBy]).
const HTTP = "http"

// Spec declares one channel. Producers and Consumers are names of tasks of the same service,
// "svc.task" for another service, or HTTP. The consumer "*" stands for all tasks.
type Spec struct {
	Service   string
	Name      string
	Kind      Kind
	Cap       int // items, or slots; 0 for a ticker, and for slots of which each processor has one
	Policy    Policy
	Producers []string
	Consumers []string
	Doc       string // which items are dropped, and the result for the caller
	Label     string // of a broadcast: value of the label bus, if not the name without "_tx" or "_bus"
}

// as returns s with its kind set and the defaults of that kind filled in.
func (s Spec) as(k Kind) Spec {
	s.Kind = k
	switch {
	case k == KindWatch:
		s.Cap = 1
		if s.Policy == "" {
			s.Policy = LastWins
		}
	case k == KindBroadcast && s.Policy == "":
		s.Policy = DropOldest
	case k == KindTicker && s.Policy == "":
		s.Policy = Merge
	case k == KindSlots && s.Policy == "":
		s.Policy = Wait
	}
	return s
}

// check returns an error if s cannot be declared.
func (s Spec) check() error {
	switch {
	case s.Service == "" || s.Name == "":
		return fmt.Errorf("flow: channel %q of service %q needs both names", s.Name, s.Service)
	case s.Kind == KindTicker, s.Kind == KindSlots && s.Cap >= 0:
		return nil
	case s.Kind != KindQueue && s.Kind != KindBroadcast && s.Kind != KindWatch:
		return fmt.Errorf("flow: %s.%s: unknown kind %q", s.Service, s.Name, s.Kind)
	case s.Cap < 1:
		return fmt.Errorf("flow: %s.%s: a %s needs a capacity", s.Service, s.Name, s.Kind)
	case s.Policy == "":
		return fmt.Errorf("flow: %s.%s: a %s needs an overflow policy", s.Service, s.Name, s.Kind)
	}
	return nil
}

// Meter creates counters and gauges. Each call resolves one series with labels given as name,
// value, …; the returned function is called on hot paths. Package flow uses queue_depth,
// queue_capacity and queue_dropped_total {queue}, bus_lagged_total {bus,consumer},
// backoff_retries_total {op}, circuit_open_total {svc}, tasks_spawned_total, tasks_aborted_total,
// tasks_canceled_total, tasks_panicked_total {kind} and service_restarts_total {task}.
type Meter interface {
	Counter(family, service string, pairs ...string) func(n int)
	Gauge(family, service string, read func() float64, pairs ...string)
}

// noMeter discards all counts.
type noMeter struct{}

func (noMeter) Counter(string, string, ...string) func(int)     { return func(int) {} }
func (noMeter) Gauge(string, string, func() float64, ...string) {}

// queueLabel returns the value of the label queue: the name without "_tx".
func queueLabel(name string) string {
	return strings.TrimSuffix(name, "_tx")
}

// busLabel returns the value of the label bus: the name without "_tx" or "_bus".
func busLabel(name string) string {
	return strings.TrimSuffix(queueLabel(name), "_bus")
}
