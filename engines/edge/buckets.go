package edge

import (
	"slices"

	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// service is the name of the edge in metrics, logs, probes and the catalogue.
const service = "edge"

// taskMetrics is a task, beside those of the packages that run their own.
const taskMetrics = "metrics"

// Bounds of the queues.
const (
	maxWaiters = 4096 // requests that wait for one object
	eventRing  = 1024 // events by which a subscriber may lag
	maxAbsent  = 4096 // remembered refusals of hosts
)

// Buckets returns the buckets of the edge.
func Buckets() []*store.Bucket {
	return slices.Insert(tables.Buckets(), 3, pack.Buckets()...)
}

// Unsummed returns the buckets whose rows have no checksum in schema 1.
func Unsummed() []*store.Bucket { return pack.Buckets() }

// Checks returns the check of the edge for a file: every row of the edge reads, and the rows are
// consistent.
func Checks() []store.Check {
	return []store.Check{{Name: service, Schema: 2, Run: func(r store.Reader) error {
		if err := tables.Read(r).Fault(); err != nil {
			return err
		}
		if err := pack.Check(r); err != nil {
			return err
		}
		return meter.Check(r)
	}}}
}
