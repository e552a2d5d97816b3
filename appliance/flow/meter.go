package flow

import "strings"

// Meter is where counters and gauges come from. Each call resolves one series, whose labels are given as name, value, …; what it returns is
// called on hot paths. flow asks for queue_depth, queue_capacity and queue_dropped_total {queue}, bus_lagged_total {bus,consumer},
// backoff_retries_total {op}, circuit_open_total {svc}, tasks_spawned_total, tasks_aborted_total, tasks_canceled_total,
// tasks_panicked_total {kind} and service_restarts_total {task}.
type Meter interface {
	Counter(family, service string, pairs ...string) func(n int)
	Gauge(family, service string, read func() float64, pairs ...string)
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) Counter(string, string, ...string) func(int)     { return func(int) {} }
func (noMeter) Gauge(string, string, func() float64, ...string) {}

// queueLabel is the value of the label queue: the name without "_tx".
func queueLabel(name string) string {
	return strings.TrimSuffix(name, "_tx")
}

// busLabel is the value of the label bus: the name without "_tx" or "_bus".
func busLabel(name string) string {
	return strings.TrimSuffix(queueLabel(name), "_bus")
}
