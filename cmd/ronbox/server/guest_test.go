package server

import (
	"bytes"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/store"
)

// honest is one request to each service that a sound node of TestReleaseOpens answers with 200.
var honest = map[string]string{
	"registry": "/registry/head",
	"ledger":   "/v1/ledger/head",
	"wallet":   "/v1/balance?account=alice&asset=ron",
	"rewarder": "/rewarder/epochs/e1",
	"edge":     "/edge/tiles/one.json",
	"index":    "/resolve/name:docs.example",
}

// TestBadRowHurtsItsServiceAlone turns one bit in a row of each bucket of each guest: `ronbox db
// verify` finds it, the node starts all the same, and the other services answer.
func TestBadRowHurtsItsServiceAlone(t *testing.T) {
	cfg, made := unpacked(t, "e1db11e")
	_, err := store.Migrate(t.Context(), cfg.Path(config.DatabaseName), "", wiring.Migrations(), nil)
	must(t, err)
	_, err = store.Compact(t.Context(), cfg.Path(config.DatabaseName), nil)
	must(t, err)
	file, err := os.ReadFile(cfg.Path(config.DatabaseName))
	must(t, err)
	for _, s := range wiring.All() {
		for i, b := range s.Buckets {
			if !s.Guest || hosttest.UnderRace() && i > 0 { // the check of a row is the work of one goroutine
				continue
			}
			t.Run(b.Name, func(t *testing.T) {
				t.Parallel()
				for row := range rowsIn(t, withFile(t, file), b.Name) {
					own := withFile(t, file)
					turnBit(t, own, b.Name, row)
					fileIsBad(t, own)
					livesWithout(t, own, made, s.Name)
				}
			})
		}
	}
}

// withFile returns the configuration of another node of the release, with the given database.
func withFile(t *testing.T, database []byte) *config.Config {
	t.Helper()
	cfg, _ := unpacked(t, "e1db11e")
	must(t, os.WriteFile(cfg.Path(config.DatabaseName), database, 0o600))
	return cfg
}

// rowsIn counts the rows of a bucket, up to two, one in a short run.
func rowsIn(t *testing.T, cfg *config.Config, bucket string) (rows int) {
	t.Helper()
	most := 2
	if testing.Short() {
		most = 1
	}
	change(t, cfg, func(tx *bolt.Tx) error {
		if b := tx.Bucket([]byte(bucket)); b != nil { // else the node makes it when it starts
			rows = min(most, b.Stats().KeyN)
		}
		return nil
	})
	return rows
}

// turnBit turns a bit in the middle of the value of a row, or of its key if it has no value.
func turnBit(t *testing.T, cfg *config.Config, bucket string, row int) {
	t.Helper()
	change(t, cfg, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		c := b.Cursor()
		key, value := c.First()
		for range row {
			key, value = c.Next()
		}
		key, value = bytes.Clone(key), bytes.Clone(value)
		if len(value) > 0 {
			value[len(value)/2] ^= 4
			return b.Put(key, value)
		}
		if err := b.Delete(key); err != nil {
			return err
		}
		key[len(key)/2] ^= 4
		return b.Put(key, value)
	})
}

func change(t *testing.T, cfg *config.Config, fn func(*bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(cfg.Path(config.DatabaseName), 0o600, &bolt.Options{Timeout: patience, PageSize: store.PageSize})
	must(t, err)
	must(t, db.Update(fn))
	must(t, db.Close())
}

// fileIsBad expects a check of the file to fail.
func fileIsBad(t *testing.T, cfg *config.Config) {
	t.Helper()
	if rep := checkedRows(t, cfg.Path(config.DatabaseName)); rep.OK {
		t.Errorf("the file is said to be sound: %+v", rep.Steps)
	}
}

// livesWithout starts the node and asks all services but one.
func livesWithout(t *testing.T, cfg *config.Config, made time.Time, hurt string) {
	t.Helper()
	var offset atomic.Int64
	offset.Store(int64(time.Until(made)))
	r := launchAt(t, cfg, turned(&offset))
	if rep := r.board.Report("", ""); !rep.Ready {
		t.Errorf("the node is not ready: %v", rep.Causes)
	}
	if hurt != "edge" {
		r.await("packs are served", func() bool { return r.ask(t, honest["edge"]).Status == http.StatusOK })
	}
	for service, path := range honest {
		got := r.ask(t, path)
		if service != hurt && got.Status != http.StatusOK {
			t.Errorf("%s: GET %s: %d %s", service, path, got.Status, got.Body)
		}
		if service == hurt && !slices.Contains([]int{200, 404, 500, 503}, got.Status) {
			t.Errorf("%s: GET %s: %d %s", service, path, got.Status, got.Body)
		}
	}
	if status, err := r.socket().Status(t.Context()); err != nil || !status.Ready {
		t.Errorf("status: %+v, %v", status, err)
	}
	r.await("metrics, which a busy machine cannot collect in time", func() bool {
		return r.ask(t, "/metrics").Status == http.StatusOK
	})
	r.halt()
}
