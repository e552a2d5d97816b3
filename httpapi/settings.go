package httpapi

import (
	"net/netip"
	"os"
	"slices"
	"time"

	"ronbox/appliance/obs"
	"ronbox/engines/registry"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/limit"
)

// Settings is what a reload may change.
type Settings struct {
	Server   front.Config
	TLS      front.TLSConfig
	UDS      front.UDSConfig    // no socket when its path, which is resolved, is empty
	Limits   map[string]Limits  // by service
	SSE      registry.SSEConfig // bounds of the event streams
	DrainCap time.Duration      // the longest drain of any service

	WalletTimeout time.Duration // of the wallet's writes; 0: 5 s
}

// Limits bound what reaches one service. A rate of 0 is no limit.
type Limits struct {
	RPS, Burst   int // of what changes something, a second
	ReadRPS      int // of the rest; as many at once
	Inflight     int // calls at one time, at least 1
	PerIP        Rate
	PerTenant    Rate
	PerPrincipal Rate
}

// Rate is a second bucket, for one of those who share the first.
type Rate struct{ RPS, Burst int }

// keyedRoom is how many addresses, tenants or principals a service's second bucket knows at once. The one idle longest
// gives way, and begins anew with a full bucket.
const keyedRoom = 65_536

// live is Settings as requests use them: immutable, read once by each.
type live struct {
	read, write  time.Duration
	maxBody      int64
	ratio        int
	maxInflated  int64
	metricsAllow []netip.Prefix
	adminOnTCP   bool
	hsts         bool // on what came by TLS
	cors         *cors
	peers        *auth.PeerMap
	sse          registry.SSEConfig
	drainCap     time.Duration

	walletTimeout time.Duration
}

// newLive fails on what Validate of the parts refuses too.
func newLive(s Settings) (*live, error) {
	allow, err := front.ParseNetworks(s.Server.MetricsAllow)
	if err != nil {
		return nil, err
	}
	peers, err := auth.NewPeerMap(s.UDS.AllowUIDs, s.UDS.Map, uint32(os.Getuid()))
	if err != nil {
		return nil, err
	}
	return &live{
		read: s.Server.ReadTimeout.D(), write: s.Server.WriteTimeout.D(), maxBody: s.Server.MaxBody.Bytes(),
		ratio: s.Server.RatioCap, maxInflated: s.Server.AbsCap.Bytes(), metricsAllow: allow, adminOnTCP: s.Server.AdminOnTCP,
		hsts: s.Server.HSTS, cors: newCORS(s.Server.CORS), peers: peers, sse: s.SSE, drainCap: s.DrainCap,
		walletTimeout: s.WalletTimeout,
	}, nil
}

// mayScrape tells whether the metrics are open to a.
func (l *live) mayScrape(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(l.metricsAllow, func(p netip.Prefix) bool { return p.Contains(a) })
}

// service is what all routes of one service share.
type service struct {
	inflight   *limiter
	writes     *limit.Bucket
	reads      *limit.Bucket
	writeShare *limit.Keyed[netip.Addr] // of writes, that one network may take
	readShare  *limit.Keyed[netip.Addr]
	byIP       *limit.Keyed[netip.Addr]
	byTenant   *limit.Keyed[string]
	byName     *limit.Keyed[string] // principals

	lateReads, lateWrites func(int) // that did not end in time
}

func newService(name string, l Limits, m *obs.Metrics) *service {
	s := &service{
		lateReads:  m.Counter("io_timeouts_total", name, "op", front.OpRead),
		lateWrites: m.Counter("io_timeouts_total", name, "op", front.OpWrite),
		inflight:   newLimiter(l.Inflight), writes: &limit.Bucket{}, reads: &limit.Bucket{},
		writeShare: limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		readShare:  limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		byIP:       limit.NewKeyed[netip.Addr](keyedRoom, 0, 0),
		byTenant:   limit.NewKeyed[string](keyedRoom, 0, 0),
		byName:     limit.NewKeyed[string](keyedRoom, 0, 0),
	}
	s.set(l)
	return s
}

// set changes the limits from now on. What was taken stays taken, who is inside stays inside.
func (s *service) set(l Limits) {
	s.inflight.max.Store(int64(l.Inflight))
	s.writes.Set(float64(l.RPS), l.Burst)
	s.reads.Set(float64(l.ReadRPS), l.ReadRPS)
	s.writeShare.Set(float64(shareOf(l.RPS)), shareOf(l.Burst))
	s.readShare.Set(float64(shareOf(l.ReadRPS)), burstOf(shareOf(l.ReadRPS)))
	s.byIP.Set(float64(l.PerIP.RPS), l.PerIP.Burst)
	s.byTenant.Set(float64(l.PerTenant.RPS), l.PerTenant.Burst)
	s.byName.Set(float64(l.PerPrincipal.RPS), l.PerPrincipal.Burst)
}
