package obs

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is what kind of metric a Family is.
type Type int

// The types of a Family.
const (
	Counter   Type = iota + 1 // only grows
	Gauge                     // goes up and down; pushed by Set or read at scrape
	Histogram                 // distribution over Buckets
)

// String is the name that the exposition format has for t.
func (t Type) String() string {
	switch t {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Histogram:
		return "histogram"
	}
	return fmt.Sprintf("type(%d)", int(t))
}

// Family is one metric name with all its series. Every series has the label "service", then Labels.
type Family struct {
	Name   string
	Help   string
	Type   Type
	Labels []string
	// Buckets are the upper bounds of a Histogram, ascending, in the unit of the name.
	Buckets []float64
	// ServiceBuckets replaces Buckets for the services it names.
	ServiceBuckets map[string][]float64
}

// sameShape reports whether f and g may be one family. The help text of the first declaration stands.
func (f Family) sameShape(g Family) bool {
	if f.Type != g.Type || !slices.Equal(f.Labels, g.Labels) || !slices.Equal(f.Buckets, g.Buckets) || len(f.ServiceBuckets) != len(g.ServiceBuckets) {
		return false
	}
	for service, b := range f.ServiceBuckets {
		if !slices.Equal(b, g.ServiceBuckets[service]) {
			return false
		}
	}
	return true
}

// bucketsFor are the bounds that service uses.
func (f Family) bucketsFor(service string) []float64 {
	if b, ok := f.ServiceBuckets[service]; ok {
		return b
	}
	return f.Buckets
}

// check finds what only a wrong declaration can hold.
func (f Family) check() error {
	switch {
	case f.Name == "" || f.Help == "":
		return fmt.Errorf("family %q needs a name and a help text", f.Name)
	case f.Type != Counter && f.Type != Gauge && f.Type != Histogram:
		return fmt.Errorf("family %s has no type", f.Name)
	case slices.Contains(f.Labels, "service"):
		return fmt.Errorf("family %s lists the label service, which every family has", f.Name)
	case (f.Type == Histogram) != (len(f.Buckets) > 0):
		return fmt.Errorf("family %s: buckets belong to a histogram, and only there", f.Name)
	}
	return nil
}

// values orders label,value,… pairs as the family's labels are, service first. A label that is not given is "".
func (f Family) values(service string, pairs []string) ([]string, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("family %s: odd label pairs %q", f.Name, pairs)
	}
	out := make([]string, 1+len(f.Labels))
	out[0] = service
	for i := 0; i < len(pairs); i += 2 {
		at := slices.Index(f.Labels, pairs[i])
		if at < 0 {
			return nil, fmt.Errorf("family %s has no label %q", f.Name, pairs[i])
		}
		out[1+at] = pairs[i+1]
	}
	return out, nil
}

// families are the metrics that services share, and those of the node itself. A metric of one engine is declared by that engine.
func families() []Family {
	return slices.Concat(queueFamilies(), taskFamilies(), upstreamFamilies(), httpFamilies(), nodeFamilies())
}

func queueFamilies() []Family {
	return []Family{
		{Name: "queue_depth", Type: Gauge, Labels: []string{"queue"}, Help: "Items waiting in the queue, read at scrape."},
		{Name: "queue_capacity", Type: Gauge, Labels: []string{"queue"}, Help: "Items that the queue holds when it is full; the log, which is bounded in bytes, has none."},
		{Name: "queue_dropped_total", Type: Counter, Labels: []string{"queue"}, Help: "Items refused, evicted or discarded by the queue."},
		{Name: "busy_rejections_total", Type: Counter, Labels: []string{"endpoint", "route"},
			Help: "Requests answered 429: a queue or an admission limit was full, or the caller beyond its rate."},
		{Name: "bus_lagged_total", Type: Counter, Labels: []string{"bus", "consumer"}, Help: "Events that a slow subscriber of a bus missed."},
	}
}

func taskFamilies() []Family {
	return []Family{
		{Name: "tasks_spawned_total", Type: Counter, Labels: []string{"kind"}, Help: "Task instances started."},
		{Name: "tasks_aborted_total", Type: Counter, Labels: []string{"kind"}, Help: "Task instances cut off after their drain deadline."},
		{Name: "tasks_canceled_total", Type: Counter, Labels: []string{"kind"}, Help: "Tasks and jobs that ended because they were cancelled."},
		{Name: "tasks_panicked_total", Type: Counter, Labels: []string{"kind"}, Help: "Panics recovered in tasks."},
		{Name: "service_restarts_total", Type: Counter, Labels: []string{"task"}, Help: "Supervised restarts of a task."},
		{Name: "io_timeouts_total", Type: Counter, Labels: []string{"op", "peer"}, Help: "Deadlines that passed during an operation: read a request, write an answer, ledger_rpc a call of the ledger, commit. Nothing connects to the ledger, which is in the process: connect stays 0."},
		{Name: "backoff_retries_total", Type: Counter, Labels: []string{"op", "svc"}, Help: "Retries made after a delay."},
		{Name: "storage_backoff_total", Type: Counter, Labels: []string{"op"}, Help: "Waits of callers for the store to take work again."},
		{Name: "commit_cas_fail_total", Type: Counter, Help: "Commits refused because HEAD had moved."},
	}
}

// upstreamFamilies count the calls of a service to others, in the process or elsewhere, and what their guards do.
func upstreamFamilies() []Family {
	return []Family{
		{Name: "upstream_fail_total", Type: Counter, Labels: []string{"svc"}, Help: "Calls of an upstream that failed for good, or were not made because its breaker was open."},
		{Name: "upstream_calls_total", Type: Counter, Labels: []string{"svc", "op", "outcome"}, Help: "Calls of an upstream, each try by itself."},
		{Name: "upstream_latency_seconds", Type: Histogram, Labels: []string{"svc", "op"},
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2}, Help: "Time of one try of a call of an upstream."},
		{Name: "circuit_open_total", Type: Counter, Labels: []string{"svc"}, Help: "Times that the breaker of an upstream opened."},
		{Name: "worker_inflight", Type: Gauge, Help: "Workers of a pool that have something in hand."},
	}
}

func httpFamilies() []Family {
	return []Family{
		{Name: "http_requests_total", Type: Counter, Labels: []string{"route", "method", "status"}, Help: "Requests answered, by route template."},
		{Name: "request_latency_seconds", Type: Histogram, Labels: []string{"route", "method"}, Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5},
			ServiceBuckets: map[string][]float64{
				"index": {.005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
				"edge":  prometheus.ExponentialBuckets(.005, 2, 11),
			},
			Help: "Time from the request's first byte to the end of its answer."},
		{Name: "inflight_requests", Type: Gauge, Labels: []string{"route"}, Help: "Requests being answered."},
		{Name: "rejected_total", Type: Counter, Labels: []string{"reason"}, Help: "Answers of 4xx and 5xx, by reason."},
		{Name: "auth_failures_total", Type: Counter, Labels: []string{"stage", "scope", "surface"}, Help: "Requests refused by authentication or authorization."},
		{Name: "tls_handshake_failures_total", Type: Counter, Help: "TLS handshakes that failed."},
		{Name: "conns_open", Type: Gauge, Labels: []string{"listener"}, Help: "Connections open."},
		{Name: "conn_rejects_total", Type: Counter, Labels: []string{"reason"}, Help: "Connections closed at accept."},
	}
}

func nodeFamilies() []Family {
	return []Family{
		{Name: "readyz_degraded", Type: Gauge, Labels: []string{"cause"}, Help: "1 while the readiness key fails."},
		{Name: "lifecycle_state", Type: Gauge, Labels: []string{"state"}, Help: "1 for the state the node is in."},
		{Name: "config_version", Type: Gauge, Help: "Number of the configuration in force, 1 at boot."},
		{Name: "ronbox_build_info", Type: Gauge, Labels: []string{"version", "commit", "go"}, Help: "1, labelled with what this binary was built from."},
		{Name: "amnesia_mode", Type: Gauge, Labels: []string{"status"}, Help: "1 for the status, on or off, of keeping the database in memory only."},
		{Name: "amnesia_purge_total", Type: Counter, Labels: []string{"kind"}, Help: "Purges of what memory held, by kind."},
		{Name: "registry_reload_success_total", Type: Counter, Labels: []string{"source"}, Help: "Configuration reloads taken into force."},
		{Name: "registry_reload_fail_total", Type: Counter, Labels: []string{"reason"}, Help: "Configuration reloads refused; the old one stayed."},
	}
}
