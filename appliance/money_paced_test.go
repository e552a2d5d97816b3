package appliance

import (
	"encoding/binary"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	pacedShare = 0.7 // of what the node does at most
	rawValue   = 350 // bytes: what a record of a transfer weighs
)

// benchmarkPaced pays as often as seven tenths of what the node has just done at most, and tells how long that takes, beside how long a
// bare server takes for as many requests, and a bare loop over bbolt for a row a commit: in turn, a second each, since a disk and a
// machine have good and bad seconds.
func benchmarkPaced(b *testing.B) {
	k, none := openBank(b, "bank", payAccounts), openBank(b, "bare", payAccounts)
	defer k.peer.end()
	defer none.peer.end()
	callers, idlers, raw := k.singles(), none.singles(), newRawLoop(b)
	wave(b, callers) // connections, caches, maps
	wave(b, idlers)
	raw.wave()
	var most, sum, bare, rows tally
	for b.Loop() {
		now := wave(b, callers)
		most = most.and(now)
		sum = sum.and(paced(b, callers, pacedShare*now.rate()))
		bare = bare.and(paced(b, idlers, pacedShare*now.rate()))
		rows = rows.and(raw.wave())
	}
	for _, c := range slices.Concat(callers, idlers) {
		c.hangUp()
	}
	slices.Sort(bare.took)
	slices.Sort(rows.took)
	sum.report(b, "transfers")
	b.ReportMetric(most.rate(), "transfers/s-at-most")
	b.ReportMetric(bare.ms(.5), "bare-p50-ms")
	b.ReportMetric(bare.ms(.99), "bare-p99-ms")
	b.ReportMetric(sum.ms(.99)/bare.ms(.99), "p99/bare-p99")
	b.ReportMetric(rows.ms(.5), "raw-p50-ms")
	b.ReportMetric(rows.ms(.99), "raw-p99-ms")
	b.ReportMetric(sum.ms(.99)/rows.ms(.99), "p99/raw-p99")
}

// rawLoop is bbolt with the store's options and nothing else.
type rawLoop struct {
	b   testing.TB
	db  *bolt.DB
	seq uint64
}

func newRawLoop(b testing.TB) *rawLoop {
	b.Helper()
	db, err := bolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bolt.Options{
		PageSize: 4096, FreelistType: bolt.FreelistMapType, InitialMmapSize: 64 << 30,
	})
	if err != nil {
		b.Fatal(err)
	}
	db.AllocSize = 16 << 20
	b.Cleanup(func() { _ = db.Close() })
	return &rawLoop{b: b, db: db}
}

// wave commits rows for a second, one after the other.
func (l *rawLoop) wave() (t tally) {
	begun := time.Now()
	for at := begun; at.Sub(begun) < time.Second; at = time.Now() {
		if err := l.db.Update(l.put); err != nil {
			l.b.Fatal(err)
		}
		t.took = append(t.took, time.Since(at))
	}
	t.transfers, t.lasted = len(t.took), time.Since(begun)
	return t
}

func (l *rawLoop) put(tx *bolt.Tx) error {
	rows, err := tx.CreateBucketIfNotExists([]byte("rows"))
	if err != nil {
		return err
	}
	rows.FillPercent = 1
	l.seq++
	return rows.Put(binary.BigEndian.AppendUint64(nil, l.seq), make([]byte, rawValue))
}
