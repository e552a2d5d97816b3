package obs

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a metric.
type Type int

// The metric types.
const (
	Counter   Type = iota + 1 // only grows
	Gauge                     // goes up and down; pushed by Set or read at each scrape
	Histogram                 // distribution over Buckets
)

// String returns the name of t in the exposition format.
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

// Family describes one metric name. Every series has the label "service", followed by Labels.
type Family struct {
	Name   string
	Help   string
	Type   Type
	Labels []string
	// Buckets are the upper bounds of a Histogram, ascending, in the unit of the name.
	Buckets []float64
	// ServiceBuckets replaces Buckets for some services.
	ServiceBuckets map[string][]float64
}

// sameShape reports whether f and g can be the same family. Their help texts may differ: the first
// declaration wins.
func (f Family) sameShape(g Family) bool {
	if f.Type != g.Type || !slices.Equal(f.Labels, g.Labels) || !slices.Equal(f.Buckets, g.Buckets) ||
		len(f.ServiceBuckets) != len(g.ServiceBuckets) {
		return false
	}
	for service, b := range f.ServiceBuckets {
		if !slices.Equal(b, g.ServiceBuckets[service]) {
			return false
		}
	}
	return true
}

// bucketsFor returns the buckets of service.
func (f Family) bucketsFor(service string) []float64 {
	if b, ok := f.ServiceBuckets[service]; ok {
		return b
	}
	return f.Buckets
}

// check returns an error if the declaration is invalid.
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

// values returns the label values in the order of the family's labels, service first. pairs are
// names and values. A label that is not given is "".
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

// families returns the metrics that services share and those of the node itself. Metrics of one
// engine are declared by that engine.
func families() []Family {
	return slices.Concat(queueFamilies(), taskFamilies(), upstreamFamilies(), httpFamilies(), nodeFamilies())
}

func queueFamilies() []Family {
	return []Family{
		{
			Name:   "queue_depth",
			Type:   Gauge,
			Labels: []string{"queue"},
			Help:   "Items waiting in the queue, read at scrape.",
		},
		{
			Name:   "queue_capacity",
			Type:   Gauge,
			Labels: []string{"queue"},
			Help:   "Capacity of the queue. The log is bounded in bytes and has no value.",
		},
		{
			Name:   "queue_dropped_total",
			Type:   Counter,
			Labels: []string{"queue"},
			Help:   "Items refused, evicted or discarded by the queue.",
		},
		{Name: "busy_rejections_total", Type: Counter, Labels: []string{"endpoint", "route"},
			Help: "Requests answered 429 because a queue or a limit was full, or the caller exceeded its rate."},
		{
			Name:   "bus_lagged_total",
			Type:   Counter,
			Labels: []string{"bus", "consumer"},
			Help:   "Events missed by a slow subscriber of a bus.",
		},
	}
}

func taskFamilies() []Family {
	return []Family{
		{Name: "tasks_spawned_total", Type: Counter, Labels: []string{"kind"}, Help: "Task instances started."},
		{
			Name:   "tasks_aborted_total",
			Type:   Counter,
			Labels: []string{"kind"},
			Help:   "Task instances cut off after their drain deadline.",
		},
		{
			Name:   "tasks_canceled_total",
			Type:   Counter,
			Labels: []string{"kind"},
			Help:   "Tasks and jobs that ended because they were cancelled.",
		},
		{Name: "tasks_panicked_total", Type: Counter, Labels: []string{"kind"}, Help: "Panics recovered in tasks."},
		{
			Name:   "service_restarts_total",
			Type:   Counter,
			Labels: []string{"task"},
			Help:   "Supervised restarts of a task.",
		},
		{
			Name:   "io_timeouts_total",
			Type:   Counter,
			Labels: []string{"op", "peer"},
			Help: "Deadlines that passed during an operation: read (a request), write (an answer), " +
				"connect (to a host, or to the leader for a forwarded request), ledger_rpc (a call of the ledger) " +
				"or commit.",
		},
		{
			Name:   "backoff_retries_total",
			Type:   Counter,
			Labels: []string{"op", "svc"},
			Help:   "Retries made after a delay.",
		},
		{
			Name:   "storage_backoff_total",
			Type:   Counter,
			Labels: []string{"op"},
			Help:   "Waits of callers until the store accepted work again.",
		},
		{Name: "commit_cas_fail_total", Type: Counter, Help: "Commits refused because HEAD had moved."},
	}
}

// upstreamFamilies returns the metrics of a service's calls to other services, in the process or
// elsewhere.
func upstreamFamilies() []Family {
	return []Family{
		{
			Name:   "upstream_fail_total",
			Type:   Counter,
			Labels: []string{"svc"},
			Help:   "Calls of an upstream that failed for good, or were not made because its breaker was open.",
		},
		{
			Name:   "upstream_calls_total",
			Type:   Counter,
			Labels: []string{"svc", "op", "outcome"},
			Help:   "Calls of an upstream, counting each try.",
		},
		{
			Name:   "upstream_latency_seconds",
			Type:   Histogram,
			Labels: []string{"svc", "op"},
			Buckets: []float64{
				.0005,
				.001,
				.0025,
				.005,
				.01,
				.025,
				.05,
				.1,
				.25,
				.5,
				1,
				2,
			},
			Help: "Duration of one try of a call of an upstream.",
		},
		{
			Name:   "circuit_open_total",
			Type:   Counter,
			Labels: []string{"svc"},
			Help:   "Times that the breaker of an upstream opened.",
		},
		{Name: "worker_inflight", Type: Gauge, Help: "Workers of a pool that are processing an item."},
	}
}

func httpFamilies() []Family {
	return []Family{
		{
			Name:   "http_requests_total",
			Type:   Counter,
			Labels: []string{"route", "method", "status"},
			Help:   "Requests answered, by route template.",
		},
		{
			Name:    "request_latency_seconds",
			Type:    Histogram,
			Labels:  []string{"route", "method"},
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 5},
			ServiceBuckets: map[string][]float64{
				"index": {.005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
				"edge":  prometheus.ExponentialBuckets(.005, 2, 11),
			},
			Help: "Time from the first byte of a request to the end of its answer.",
		},
		{Name: "inflight_requests", Type: Gauge, Labels: []string{"route"}, Help: "Requests being answered."},
		{Name: "rejected_total", Type: Counter, Labels: []string{"reason"}, Help: "Answers of 4xx and 5xx, by reason."},
		{
			Name:   "auth_failures_total",
			Type:   Counter,
			Labels: []string{"stage", "scope", "surface"},
			Help:   "Requests refused by authentication or authorization.",
		},
		{Name: "tls_handshake_failures_total", Type: Counter, Help: "TLS handshakes that failed."},
		{Name: "conns_open", Type: Gauge, Labels: []string{"listener"}, Help: "Connections open."},
		{Name: "conn_rejects_total", Type: Counter, Labels: []string{"reason"}, Help: "Connections closed at accept."},
	}
}

func nodeFamilies() []Family {
	return []Family{
		{Name: "readyz_degraded", Type: Gauge, Labels: []string{"cause"}, Help: "1 while the readiness key fails."},
		{Name: "lifecycle_state", Type: Gauge, Labels: []string{"state"}, Help: "1 for the current state of the node."},
		{
			Name: "clock_offset_seconds",
			Type: Gauge,
			Help: "The wall clock minus the node's clock: positive while a wall clock ahead of it is not believed yet.",
		},
		{
			Name: "clock_steps_total", Type: Counter, Labels: []string{"direction"},
			Help: "Steps of the wall clock: forward, followed by the node's clock; backward, by more than 10 s.",
		},
		{
			Name: "backup_age_seconds",
			Type: Gauge,
			Help: "Time since the newest verified snapshot, or since the start if there is none.",
		},
		{Name: "service_on", Type: Gauge, Help: "1 if the configuration has the service on, else 0."},
		{
			Name: "backup_interval_seconds",
			Type: Gauge,
			Help: "store.snapshot_every, the interval of scheduled snapshots; 0: none.",
		},
		{
			Name: "auth_token_expiry_seconds",
			Type: Gauge,
			Help: "Unix time of the next expiry of a token minted for more than a week; NaN: no such token.",
		},
		{
			Name: "auth_root_key_due_seconds",
			Type: Gauge,
			Help: "Unix time when the key that mints tokens is due for rotation; NaN: not known yet.",
		},
		{Name: "config_version", Type: Gauge, Help: "Number of the configuration in force, 1 at boot."},
		{
			Name: "registry_config_version", Type: Gauge,
			Help: "Number of the configuration in force, as config_version.",
		},
		{
			Name:   "ronbox_build_info",
			Type:   Gauge,
			Labels: []string{"version", "commit", "go"},
			Help:   "1, labelled with the build of this binary.",
		},
		{
			Name:   "amnesia_mode",
			Type:   Gauge,
			Labels: []string{"status"},
			Help:   "1 for the current status, on or off, of memory mode.",
		},
		{
			Name:   "amnesia_purge_total",
			Type:   Counter,
			Labels: []string{"kind"},
			Help:   "Purges of data in memory, by kind.",
		},
		{
			Name:   "registry_reload_success_total",
			Type:   Counter,
			Labels: []string{"source"},
			Help:   "Configuration reloads applied.",
		},
		{
			Name:   "registry_reload_fail_total",
			Type:   Counter,
			Labels: []string{"reason"},
			Help:   "Configuration reloads refused; the old configuration stays.",
		},
	}
}
