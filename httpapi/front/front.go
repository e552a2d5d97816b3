package front

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/obs"
	"ronbox/appliance/systemd"
	"ronbox/httpapi/egress"
)

const (
	serviceNode = "node"
	maxPeers    = 128 // connections of the admin socket
)

// Options are the dependencies of a Front. Only Metrics and Inherited may be nil.
type Options struct {
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Log     hclog.Logger
	Handler http.Handler

	// Bypass reports whether a request is a probe, which may use a reserved connection.
	Bypass func(*http.Request) bool
	// Counted is called with the reason of every refusal and time-out before the handler.
	Counted func(reason string)
	// TimedOut is called with the service when reading a request or writing an answer times out.
	TimedOut func(service, op string)
	// Problem returns the header and body of a refusal.
	Problem func(status int, reason, detail string) (http.Header, []byte)
	// SocketMay reports whether a peer of the socket is admitted.
	SocketMay func(uid, gid uint32) bool
	// Inherited are open listeners to use instead of the first bind, by their systemd names.
	Inherited map[string]net.Listener
}

// Front holds the node's listeners.
type Front struct {
	o          Options
	cfg        Config // owned by reload, as are tls and uds
	tls        TLSConfig
	uds        UDSConfig
	networks   atomic.Pointer[networks]
	certs      *certs
	maxHeader  int         // bytes of a request line and headers
	handshakes func(n int) // counts failed handshakes
	drops      *drops
	base       context.Context // of every request
	cut        context.CancelFunc
	writes     *egress.Pool
	delayed    atomic.Int64 // connections without a slot that wait to be refused or closed

	cutGrace, backlogGrace time.Duration // longer in tests on busy machines

	tcp   *endpoint
	admin *endpoint // nil without a socket
}

// New returns a Front without open listeners. The configurations must be valid and the path of the
// socket absolute. Without a path there is no socket.
func New(cfg Config, tls TLSConfig, uds UDSConfig, o Options) *Front {
	o.Metrics.Declare(obs.Family{
		Name: "tls_handshake_failures_total", Type: obs.Counter, Help: "TLS handshakes that failed.",
	})
	o.Metrics.Declare(obs.Family{
		Name: "tls_certificate_expiry_seconds",
		Type: obs.Gauge,
		Help: "Unix time when the certificate in use expires; NaN: TLS is off.",
	})
	f := &Front{
		o:            o,
		cfg:          cfg,
		tls:          tls,
		uds:          uds,
		certs:        newCerts(o.Log),
		drops:        newDrops(o.Catalog),
		writes:       egress.NewPool(),
		maxHeader:    int(cfg.MaxHeader.Bytes()),
		handshakes:   o.Metrics.Counter("tls_handshake_failures_total", serviceNode),
		cutGrace:     cutGrace,
		backlogGrace: backlogGrace,
	}
	f.base, f.cut = context.WithCancel(context.Background())
	o.Metrics.Gauge("tls_certificate_expiry_seconds", serviceNode, f.certificateExpiry)
	f.networks.Store(newNetworks(cfg))
	f.tcp = f.newEndpoint("http", "tcp", cfg.Acceptors, cfg.limits())
	if uds.Path != "" {
		f.admin = f.newEndpoint("admin_http", "unix", 1, limits{total: maxPeers})
	}
	return f
}

func (c Config) limits() limits {
	return limits{total: c.MaxConns, perIP: c.PerIP, reserved: c.Reserved}
}

// settings returns the settings of the TCP listener.
func (c Config) settings(tls TLSConfig) settings {
	return settings{
		bind:      c.Bind,
		header:    c.ReadTimeout.D(),
		idle:      c.IdleTimeout.D(),
		secure:    tls.Enabled,
		plaintext: c.Plaintext,
	}
}

func (c Config) socketSettings(uds UDSConfig) settings {
	s := c.settings(TLSConfig{})
	s.bind = uds.Path
	return s
}

// inherited returns the listener that replaces the first bind of a network, or nil.
func (f *Front) inherited(network string) net.Listener {
	if network == "unix" {
		return f.o.Inherited[systemd.AdminName]
	}
	return f.o.Inherited[systemd.HTTPName]
}

// Listen opens the TCP address and the admin socket, once. It replaces the socket file of a dead
// process, so the caller must hold the lock of the data directory.
func (f *Front) Listen(ctx context.Context) error {
	if f.tls.Enabled {
		p, err := readPair(f.tls)
		if err != nil {
			return err
		}
		f.certs.set(p)
	}
	f.warnLimits()
	if err := f.tcp.listen(ctx, f.cfg.settings(f.tls), access{}); err != nil {
		return err
	}
	if f.admin == nil {
		f.warnPlaintext()
		if l := f.inherited("unix"); l != nil {
			return l.Close() // so that its clients do not wait forever
		}
		return nil
	}
	if err := f.admin.listen(ctx, f.cfg.socketSettings(f.uds), f.uds.access()); err != nil {
		return errors.Join(err, f.tcp.close())
	}
	f.warnReach(f.uds)
	f.warnPlaintext()
	return nil
}

// warnReach logs a warning if users in the configuration have no access to the socket.
func (f *Front) warnReach(uds UDSConfig) {
	if !uds.namesOthers() {
		return
	}
	if dir := closedAbove(uds.Path); dir != "" {
		f.o.Log.Warn("uds.out_of_reach", "path", uds.Path, "closed", dir,
			"advice", "set uds.path to a path that users in [uds] can access, such as /run/ronbox/admin.sock")
	}
}

// wantBacklog is a listen queue that holds a burst of clients.
const wantBacklog = 4096

// warnLimits logs the system limits that are too low for the listeners. Go uses the largest
// possible listen queue.
func (f *Front) warnLimits() {
	if n, err := host.ReadSoMaxConn(); err == nil && n < wantBacklog {
		f.o.Log.Warn("listen.backlog_small", "somaxconn", n, "advice", "set net.core.somaxconn to 4096")
	}
	var files unix.Rlimit
	want := 2 * uint64(f.cfg.MaxConns)
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < want {
		f.o.Log.Warn("listen.files_few", "limit", files.Cur, "want", want, "advice",
			"raise LimitNOFILE or lower server.max_conns")
	}
}

// Addr returns the current TCP address. Call it after Listen.
func (f *Front) Addr() string { return f.tcp.addr() }

// URL returns the URL of the TCP address.
func (f *Front) URL() string {
	if g := f.tcp.generation(); g != nil && g.settings.secure {
		return "https://" + f.Addr()
	}
	return "http://" + f.Addr()
}

// SocketPath returns the path of the admin socket, or "" without one.
func (f *Front) SocketPath() string {
	switch {
	case f.admin == nil:
		return ""
	case f.admin.generation() == nil:
		return f.uds.Path
	}
	return f.admin.addr()
}

// Conns returns the number of open TCP connections.
func (f *Front) Conns() int { return f.tcp.conns.open() }

// Tasks returns the accept loops.
func (f *Front) Tasks() []flow.Task {
	out := []flow.Task{f.tcp.task("Accepts on TCP; every connection has a goroutine of net/http.")}
	if f.admin != nil {
		out = append(out, f.admin.task("Accepts on the admin socket, peers by uid."))
	}
	return out
}

// Prepare does everything in a reload that can fail: it binds new addresses and reads the
// certificate. The caller must then call exactly one of swap and undo; neither waits. After swap
// new connections use the new settings. Open ones keep the old settings and close after their next
// answer. Only one reload may run at a time.
func (f *Front) Prepare(ctx context.Context, cfg Config, tls TLSConfig, uds UDSConfig) (swap, undo func(), err error) {
	all := noChange
	for _, part := range []func() (change, error){
		func() (change, error) { return f.prepareTLS(tls) },
		func() (change, error) { return f.tcp.prepare(ctx, cfg.settings(tls), access{}) },
		func() (change, error) { return f.prepareSocket(ctx, cfg, uds) },
	} {
		c, err := part()
		if err != nil {
			all.undo()
			return nil, nil, err
		}
		all = all.then(c)
	}
	return func() {
		f.networks.Store(newNetworks(cfg))
		f.tcp.conns.setLimits(cfg.limits())
		all.swap()
		f.cfg, f.tls, f.uds = cfg, tls, uds
		f.warnPlaintext()
	}, all.undo, nil
}

// prepareTLS reads the certificate, even if only the content of the files may have changed.
func (f *Front) prepareTLS(tls TLSConfig) (change, error) {
	if !tls.Enabled {
		return noChange, nil // the old generation keeps its certificate
	}
	p, err := readPair(tls)
	if err != nil {
		return change{}, err
	}
	return change{func() { f.certs.set(p) }, noChange.undo}, nil
}

var errSocket = errors.New(
	"uds.path: a running node can move the admin socket, but neither remove nor add it",
)

func (f *Front) prepareSocket(ctx context.Context, cfg Config, uds UDSConfig) (change, error) {
	if (f.admin == nil) != (uds.Path == "") {
		return change{}, errSocket
	}
	if f.admin == nil {
		return noChange, nil
	}
	moved, err := f.admin.prepare(ctx, cfg.socketSettings(uds), uds.access())
	if err != nil {
		return change{}, err
	}
	opened, err := f.admin.prepareAccess(uds.Path, uds.access())
	if err != nil {
		moved.undo()
		return change{}, err
	}
	f.warnReach(uds)
	return moved.then(opened), nil
}

// Keep stops accepting and returns duplicates of the sockets for the next run of the process.
// Connections that are not accepted yet wait for it. The task of an endpoint then ends.
func (f *Front) Keep() (kept []systemd.Socket, err error) {
	for name, e := range map[string]*endpoint{systemd.HTTPName: f.tcp, systemd.AdminName: f.admin} {
		if e == nil || e.generation() == nil {
			continue
		}
		s, failed := e.keep(name)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		kept = append(kept, s)
	}
	return kept, err
}

// Cut ends the contexts of all requests, so that their handlers answer at once.
func (f *Front) Cut() { f.cut() }

// Shutdown stops accepting, first on TCP, and waits for running handlers until ctx ends. Then it
// closes the remaining connections. It returns an error if handlers are still running.
func (f *Front) Shutdown(ctx context.Context) error {
	f.drops.stop()
	err := f.tcp.shutdown(ctx)
	if f.admin != nil {
		err = errors.Join(err, f.admin.shutdown(ctx))
	}
	return err
}

// keep ends accepting and returns a duplicate of the socket, which stays bound.
func (e *endpoint) keep(name string) (systemd.Socket, error) {
	e.mu.Lock()
	e.ended = true
	g := e.current
	e.mu.Unlock()
	l, ok := g.socket.Listener.(syscall.Conn)
	if !ok {
		return systemd.Socket{}, errors.ErrUnsupported
	}
	bind := g.socket.bind
	if g.socket.inherited {
		bind = ""
	}
	s, err := systemd.Duplicate(name, bind, l)
	if err == nil {
		g.socket.kept.Store(true)
		g.stop()
	}
	return s, err
}
