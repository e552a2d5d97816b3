package flow

import "fmt"

// Kind says what a channel is.
type Kind string

// The kinds of channels.
const (
	KindQueue     Kind = "queue"
	KindBroadcast Kind = "broadcast"
	KindWatch     Kind = "watch"
	KindTicker    Kind = "ticker"
)

// Policy says in words what happens when a channel is full; it is printed in the catalogue.
type Policy string

// The overflow policies in use. A queue that needs other words may declare them.
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

// HTTP names the request handlers as a producer; what they feed closes at the drain gate (Catalog.CloseFedBy).
const HTTP = "http"

// Spec declares one channel. Producers and Consumers name tasks of the same service, "svc.task" across services, or HTTP; a consumer "*"
// stands for every task.
type Spec struct {
	Service   string
	Name      string
	Kind      Kind
	Cap       int // items held; 0 for a ticker
	Policy    Policy
	Producers []string
	Consumers []string
	Doc       string // what is dropped, and what the caller sees
	Label     string // of a broadcast: the value of the label bus, if it is not the name without "_tx" or "_bus"
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
	}
	return s
}

// check reports what makes s unfit to be declared.
func (s Spec) check() error {
	switch {
	case s.Service == "" || s.Name == "":
		return fmt.Errorf("flow: channel %q of service %q needs both names", s.Name, s.Service)
	case s.Kind == KindTicker:
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
