package server

import (
	"context"
	"io"
	"time"

	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	nodeapi "ronbox/httpapi/wire/node"
)

// Periods of the jobs that no configuration sets.
const (
	sweepEvery  = time.Minute
	rotateEvery = time.Minute
)

// versions returns the versions of the program and of its documents, for manifests.
func (n *Node) versions() map[string]string {
	versions := map[string]string{"ronbox": n.build.Version}
	for _, s := range wiring.All() {
		if s.Schema != "" {
			versions[s.Name] = s.Schema
		}
	}
	return versions
}

// buildArchive builds the archive, before the store, which gives it every change.
func (n *Node) buildArchive() (err error) {
	n.archive, err = upkeep.NewArchive(upkeep.ArchiveDeps{
		Config: n.boot, Catalog: n.catalog, Metrics: n.metrics, Log: n.levels.Logger(), Now: n.now,
		Versions: n.versions(), Note: n.note, Based: func(at time.Time) { n.backup.Taken(at) },
	})
	return err
}

// buildUpkeep builds the parts that do recurring work, after the store and the engines.
func (n *Node) buildUpkeep() {
	n.backup = upkeep.NewBackup(upkeep.BackupDeps{
		Config: n.conf, Store: n.store, Log: n.log, Now: n.now,
		Started: func() time.Time { return n.started }, OnDisk: n.onDisk, Record: n.record, Versions: n.versions(),
	})
	n.janitor = upkeep.NewJanitor(upkeep.JanitorDeps{
		Catalog: n.catalog, Service: ownService, Log: n.log, Now: n.now, Jobs: n.jobs, Pace: n.purgeEvery,
	})
	n.closing = &upkeep.Closing{Closer: n.services.Closer, Now: n.now, Note: n.note}
	n.series = upkeep.NewSeries(upkeep.SeriesDeps{
		Catalog: n.catalog, Service: ownService, Metrics: n.metrics, Store: n.store, Wall: n.wall,
		Own: n.services.Asked,
	})
	n.backup.Describe(n.metrics, ownService)
	n.expiries.Describe(n.metrics, ownService)
}

// flightDir is the folder of the dumps of the recorder, in the data directory.
const flightDir = "flight"

// buildRecorder builds the recorder, before the store, which tells it of slow commits.
func (n *Node) buildRecorder() {
	d := upkeep.RecorderDeps{
		Catalog: n.catalog, Service: ownService, Log: n.log, Flight: n.flight, Wall: n.wall,
		CommitAge: func() time.Duration { return n.store.CommitAge() },
	}
	if !n.boot.Amnesia.Enabled {
		d.Dir = n.boot.Path(flightDir)
	}
	n.recorder = upkeep.NewRecorder(d)
}

// jobs returns all jobs, the most urgent first.
func (n *Node) jobs(now time.Time) []*upkeep.Job {
	out := []*upkeep.Job{{Name: "purge", Every: n.purgeEvery, Do: n.purgeCaches, Last: now}}
	for _, r := range n.services.Recovered() {
		if r.Jobs != nil {
			out = append(out, r.Jobs(n.services, now)...)
		}
	}
	return append(out,
		&upkeep.Job{Name: "auth_sweep", Every: upkeep.Fixed(sweepEvery), Do: n.Sweep},
		&upkeep.Job{Name: "key_rotation", Every: upkeep.Fixed(rotateEvery), Do: func(ctx context.Context) error {
			return n.RotateDue(ctx, tokens.Self("janitor"))
		}},
		n.expiries.Job(n.Expiry),
		n.backup.Job(now),
	)
}

// purgeEvery returns the interval of cache purges, or 0 if the node has a disk.
func (n *Node) purgeEvery() time.Duration {
	if !n.boot.Amnesia.Enabled {
		return 0
	}
	return time.Duration(n.conf().Amnesia.PurgeIntervalMS) * time.Millisecond
}

// purgeCaches empties the caches and resets the probe of writes to a disk.
func (n *Node) purgeCaches(context.Context) error {
	for _, r := range n.services.Recovered() {
		if r.Cache != "" {
			r.Purge()
			n.metrics.Counter("amnesia_purge_total", ownService, "kind", r.Cache)(1)
		}
	}
	n.board.Set(ownService, keyAmnesia, nil)
	return nil
}

// Series returns the series of the last hour. A node that started less than an hour ago has fewer
// points. The requests do not include those that pages of the console make of the node.
func (n *Node) Series() nodeapi.SeriesList { return n.series.List() }

// Profile writes a Go profile, an execution trace, or the window of the flight recorder.
func (n *Node) Profile(ctx context.Context, name string, d time.Duration, w io.Writer) error {
	return n.recorder.Profile(ctx, name, d, w)
}

// Sessions returns the open sessions of the console, oldest first.
func (n *Node) Sessions() (nodeapi.SessionList, error) { return n.services.Sessions() }

// EndSession ends a session of the console. It returns ErrNoSuch if there is no such session.
func (n *Node) EndSession(ctx context.Context, by engines.Actor, corrID, id string) error {
	return n.services.EndSession(ctx, by, corrID, id)
}
