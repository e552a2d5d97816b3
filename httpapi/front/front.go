package front

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/obs"
	"ronbox/appliance/systemd"
)

const (
	serviceNode = "node"
	maxPeers    = 128 // connections of the admin socket
)

// Options are the front's neighbours. Handler is needed, all else may be nil.
type Options struct {
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Log     hclog.Logger
	Handler http.Handler

	// Bypass tells a probe, which may use a reserved connection. nil: none is.
	Bypass func(*http.Request) bool
	// Counted hears the reason of everything that is refused, or given up, before the handler.
	Counted func(reason string)
	// TimedOut hears of requests that were not read in time, and of answers that were not written in time, by whose they are.
	TimedOut func(service, op string)
	// Problem words a refusal: the header and body of its answer. nil: an empty one.
	Problem func(status int, reason, detail string) (http.Header, []byte)
	// SocketMay tells which peers of the socket are let in. nil: the own uid and root.
	SocketMay func(uid, gid uint32) bool
	// Inherited are open listeners that stand in for the first bind, by their names in systemd.
	Inherited map[string]net.Listener
}

func (o Options) normal() Options {
	if o.Catalog == nil {
		o.Catalog = flow.NewCatalog(nil, nil)
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Bypass == nil {
		o.Bypass = func(*http.Request) bool { return false }
	}
	if o.Counted == nil {
		o.Counted = func(string) {}
	}
	if o.TimedOut == nil {
		o.TimedOut = func(string, string) {}
	}
	if o.Problem == nil {
		o.Problem = bare
	}
	if o.SocketMay == nil {
		o.SocketMay = uidAllowed
	}
	return o
}

// Front is the node's listeners.
type Front struct {
	o          Options
	cfg        Config // owned by the one reload at a time, as are tls and uds
	tls        TLSConfig
	uds        UDSConfig
	live       atomic.Pointer[live]
	certs      *certs
	counted    func(reason string)
	handshakes func(n int)  // that failed
	lingering  atomic.Int64 // connections without a place, that wait to be refused or to be closed

	tcp   *endpoint
	admin *endpoint // nil without a socket
}

// New wires the listeners and opens none. The configurations are valid, and the socket's path is resolved; without one
// there is no socket.
func New(cfg Config, tls TLSConfig, uds UDSConfig, o Options) *Front {
	o = o.normal()
	o.Metrics.Declare(obs.Family{
		Name: "tls_handshake_failures_total", Type: obs.Counter, Help: "TLS handshakes that failed.",
	})
	f := &Front{
		o: o, cfg: cfg, tls: tls, uds: uds, certs: newCerts(o.Log), counted: o.Counted,
		handshakes: o.Metrics.Counter("tls_handshake_failures_total", serviceNode),
	}
	f.live.Store(newLive(cfg))
	f.tcp = f.newEndpoint("http", "tcp", cfg.limits())
	if uds.Path != "" {
		f.admin = f.newEndpoint("admin_http", "unix", limits{total: maxPeers})
	}
	return f
}

func (c Config) limits() limits {
	return limits{total: c.MaxConns, perIP: c.PerIP, reserved: c.Reserved}
}

// settings of the TCP listener, and of the socket.
func (c Config) settings(tls TLSConfig) settings {
	return settings{
		bind: c.Bind, header: c.ReadTimeout.D(), idle: c.IdleTimeout.D(), maxHeader: int(c.MaxHeader.Bytes()), secure: tls.Enabled,
	}
}

func (c Config) socketSettings(uds UDSConfig) settings {
	s := c.settings(TLSConfig{})
	s.bind = uds.Path
	return s
}

// inherited gives the listener that stands in for the first bind of a network, or nil.
func (f *Front) inherited(network string) net.Listener {
	if network == "unix" {
		return f.o.Inherited[systemd.AdminName]
	}
	return f.o.Inherited[systemd.HTTPName]
}

// Listen opens the TCP address and the admin socket, once. It takes over the file of a socket that a dead process left,
// so the caller must hold the data directory.
func (f *Front) Listen(ctx context.Context) error {
	if f.tls.Enabled {
		p, err := readPair(f.tls)
		if err != nil {
			return err
		}
		f.certs.put(p)
	}
	f.warnLimits()
	if err := f.tcp.listen(ctx, f.cfg.settings(f.tls), access{}); err != nil {
		return err
	}
	if f.admin == nil {
		if l := f.inherited("unix"); l != nil {
			return l.Close() // else who connects would wait for ever
		}
		return nil
	}
	if err := f.admin.listen(ctx, f.cfg.socketSettings(f.uds), f.uds.access()); err != nil {
		return errors.Join(err, f.tcp.close())
	}
	f.warnReach(f.uds)
	return nil
}

// warnReach says when those that the configuration names cannot get to the socket.
func (f *Front) warnReach(uds UDSConfig) {
	if !uds.namesOthers() {
		return
	}
	if dir := closedAbove(uds.Path); dir != "" {
		f.o.Log.Warn("uds.out_of_reach", "path", uds.Path, "closed", dir,
			"advice", "give uds.path a place that those whom [uds] names can pass to, such as /run/ronbox/admin.sock")
	}
}

// wantBacklog is the queue of the kernel that a burst of clients fits in.
const wantBacklog = 4096

// warnLimits says what the system allows less of than the listeners may need. Go asks for all the backlog there is.
func (f *Front) warnLimits() {
	if n, err := host.ReadSoMaxConn(); err == nil && n < wantBacklog {
		f.o.Log.Warn("listen.backlog_small", "somaxconn", n, "advice", "set net.core.somaxconn to 4096")
	}
	var files unix.Rlimit
	want := 2 * uint64(f.cfg.MaxConns)
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur < want {
		f.o.Log.Warn("listen.files_few", "limit", files.Cur, "want", want, "advice", "raise LimitNOFILE or lower server.max_conns")
	}
}

// Addr is the TCP address in force, once Listen has returned.
func (f *Front) Addr() string { return f.tcp.addr() }

// URL is where the TCP address is reached.
func (f *Front) URL() string {
	if g := f.tcp.generation(); g != nil && g.settings.secure {
		return "https://" + f.Addr()
	}
	return "http://" + f.Addr()
}

// SocketPath is the admin socket's, "" without one.
func (f *Front) SocketPath() string {
	switch {
	case f.admin == nil:
		return ""
	case f.admin.generation() == nil:
		return f.uds.Path
	}
	return f.admin.addr()
}

// Conns counts the open TCP connections.
func (f *Front) Conns() int { return f.tcp.book.open() }

// Tasks are the accept loops.
func (f *Front) Tasks() []flow.Task {
	out := []flow.Task{f.tcp.task("Accepts on TCP; every connection has a goroutine of net/http.")}
	if f.admin != nil {
		out = append(out, f.admin.task("Accepts on the admin socket, peers by uid."))
	}
	return out
}

// Shutdown stops accepting, on TCP first, and waits for the calls in hand until ctx ends; then it cuts what is left,
// and says so.
func (f *Front) Shutdown(ctx context.Context) error {
	err := f.tcp.shutdown(ctx)
	if f.admin != nil {
		err = errors.Join(err, f.admin.shutdown(ctx))
	}
	return err
}
