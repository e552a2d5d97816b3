package front

import (
	"context"
	"errors"
	"net/http"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

const (
	serviceNode = "node"
	maxPeers    = 128 // connections of the admin socket
)

// Options are the front's neighbours. Handler is needed; Metrics and Log may be nil.
type Options struct {
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Handler   http.Handler
	SocketMay func(uid, gid uint32) bool // which peers of the socket are let in; nil: the own uid and root
}

// Front is the node's listeners.
type Front struct {
	o     Options
	tcp   *endpoint
	admin *endpoint // nil without a socket
}

// New wires the listeners and opens none. The configurations are valid, and the socket's path is resolved; without one
// there is no socket.
func New(cfg Config, _ TLSConfig, uds UDSConfig, o Options) *Front {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.SocketMay == nil {
		o.SocketMay = func(uid, _ uint32) bool { return uidAllowed(uid) }
	}
	f := &Front{o: o}
	f.tcp = f.newEndpoint(cfg, "http", "tcp", cfg.Bind, cfg.MaxConns)
	if uds.Path != "" {
		f.admin = f.newEndpoint(cfg, "admin_http", "unix", uds.Path, maxPeers)
	}
	return f
}

// Listen opens the TCP address and the admin socket. It takes over the file of a socket that a dead process left, so
// the caller must hold the data directory.
func (f *Front) Listen(ctx context.Context) error {
	if err := f.tcp.listen(ctx); err != nil {
		return err
	}
	if f.admin == nil {
		return nil
	}
	if err := f.admin.listen(ctx); err != nil {
		return errors.Join(err, f.tcp.close())
	}
	return nil
}

// Addr is the TCP address in force, once Listen has returned.
func (f *Front) Addr() string { return f.tcp.addr() }

// URL is where the TCP address is reached.
func (f *Front) URL() string { return "http://" + f.Addr() }

// SocketPath is the admin socket's, "" without one.
func (f *Front) SocketPath() string {
	if f.admin == nil {
		return ""
	}
	return f.admin.bind
}

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
