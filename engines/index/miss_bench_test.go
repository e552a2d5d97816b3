package index_test

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
)

// BenchmarkMiss looks up content ids that only peers know. The peers answer at once, so it measures
// the path of a lookup through the engine. user-ns/op is the processor time, including garbage
// collection.
func BenchmarkMiss(b *testing.B) {
	at, end := time.Now().UnixMilli(), time.Now().Add(time.Hour).UnixMilli()
	list := []name.Provider{
		{
			Peer:      name.PeerIDOf(publicOf(seedKey(9))),
			Addrs:     []string{"/ip4/192.0.2.1/tcp/8443/https"},
			AtMS:      at,
			ExpiresMS: end,
		},
	}
	knows := func(context.Context, b3.Digest) ([]name.Provider, error) { return list, nil }
	for _, run := range []struct {
		name      string
		providers func(context.Context, b3.Digest) ([]name.Provider, error)
		err       error
	}{{"known", knows, nil}, {"unknown", nil, name.ErrNotFound}} {
		b.Run(run.name, func(b *testing.B) {
			peer := func() *fake { return &fake{providers: run.providers} }
			r := newRig(b, withPeers(peer(), peer(), peer())).start()
			var n atomic.Uint64
			begun := userTime()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					var cid b3.Digest
					binary.BigEndian.PutUint64(cid[:], n.Add(1))
					if _, err := r.e.Providers(r.ctx(), cid, name.ProvidersOptions{}); !errors.Is(err, run.err) {
						b.Error(err)
						return
					}
				}
			})
			runtime.GC()
			b.ReportMetric(float64(userTime()-begun)/float64(b.N), "user-ns/op")
		})
	}
}

// userTime returns the user processor time of this process.
func userTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano())
}
