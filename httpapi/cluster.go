package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Cluster is the part of a cluster that decides which node answers. Its methods are called from any
// goroutine.
type Cluster interface {
	// Self returns the id of this node.
	Self() string
	// Leads reports whether this node leads, and its engines are ready to answer. It does not
	// block.
	Leads() bool
	// Leader returns the node that leads, and the address of its peer port. It does not block.
	Leader() (id, addr string, ok bool)
	// Copies reports whether this node, which does not lead, can answer reads of a service from its
	// copy of the file. It does not block.
	Copies(service string) bool
	// Outage returns the time since this node has last heard a leader. ok is false if one is known,
	// or was a heartbeat ago, and if answers that may be out of date are not wanted. It does not
	// block.
	Outage() (age time.Duration, ok bool)
	// LeaderURL returns the URL at which clients reach the node that leads, or "" if that is not
	// known or this node leads. It does not block.
	LeaderURL() string
	// Removed reports whether the leader has said that this node is no member. It does not block.
	Removed() bool
	// Confirm returns nil if this node still led after the call began. It blocks for one round of
	// messages, until ctx ends.
	Confirm(ctx context.Context) error
	// Peer returns the transport to the peer ports of the cluster. It reports its progress by
	// net/http/httptrace, does not decompress, and refuses a server that is not of this cluster.
	Peer() http.RoundTripper
}

// nameLeader names the node that leads in the headers of an answer, so that a client may go there.
// It keeps a name that they have.
func (s *Server) nameLeader(h http.Header) {
	if s.d.Cluster == nil || h.Get(wire.LeaderHeader) != "" {
		return
	}
	if url := s.d.Cluster.LeaderURL(); url != "" {
		h.Set(wire.LeaderHeader, url)
	}
}

// refusalWithin bounds the confirmation of a refusal.
const refusalWithin = time.Second

// confirm makes answers wait until a quorum confirms that this node leads, so that a deposed node
// shows no old state: answers of reads before their first byte, and refusals of writes. An accepted
// write needs no confirmation, because a quorum has it, nor does content that cannot change.
func confirm(s *Server, b *boundRoute, next Handler) Handler {
	if s.d.Cluster == nil {
		return next
	}
	reads := !b.route.Writes() && b.route.Copy != CopyExact
	return func(c *Request) error {
		if c.copies {
			return next(c)
		}
		c.confirms = reads
		defer func() { c.confirms = false }()
		err := next(c)
		if err != nil && c.status == 0 && b.service.classify(err).Status < http.StatusInternalServerError {
			// it may be due to old state, and may come after the deadline, as of a slow body
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), refusalWithin)
			_ = c.confirmedIn(ctx)
			cancel()
		}
		if c.unsure != nil {
			return c.unsure
		}
		return err
	}
}

// confirmed reports whether the node still leads. If it does not, the headers of the answer are
// removed, and the rest of the answer is discarded.
func (r *Request) confirmed() bool { return r.confirmedIn(r.Context()) }

func (r *Request) confirmedIn(ctx context.Context) bool {
	if r.unsure != nil {
		return false
	}
	err := r.server.d.Cluster.Confirm(ctx)
	if err == nil {
		return true
	}
	r.unsure = fmt.Errorf("%w: %w", store.ErrNotLeader, err)
	r.dropHeaders()
	return false
}

// frameHeader reports whether a header of an answer is set by the stages before the handler.
func frameHeader(name string) bool {
	switch name {
	case corrHeader, rateHeader, "Connection", "Vary", "Strict-Transport-Security", "Content-Security-Policy",
		"Referrer-Policy", "X-Content-Type-Options", frameOptions, corsPolicy:
		return true
	}
	return strings.HasPrefix(name, "Access-Control-")
}

// Copy determines whether a node that does not lead may answer a route from its copy of the file.
// Only public routes may have one: such a node judges no token.
type Copy int

const (
	CopyNone Copy = iota // the leader answers
	// CopyExact is of content that its path determines: it is named by its hash, or was signed
	// once. Every node answers, and the leader does so without asking a quorum.
	CopyExact
	// CopyOutage is of content that may have changed since. A node answers while it knows no
	// leader, and the answer has AgeHeader.
	CopyOutage
)

// AgeHeader is the header of an answer that may be out of date: the seconds since the node has last
// heard the leader, as 1.250. Other answers do not have it.
const AgeHeader = "Ronbox-Age"

// ageParam describes AgeHeader.
func ageParam() openapi.Param {
	return openapi.Param{
		Name:    AgeHeader,
		Doc:     "seconds since the node has last heard the leader: no node leads, and the answer may be out of date",
		Pattern: `^\d+\.\d{3}$`,
	}
}

// mayCopy reports whether this node, which does not lead, is to look into its copy first.
func (r *Request) mayCopy() bool {
	cluster := r.server.d.Cluster
	if r.route.Copy == CopyNone || cluster.Removed() || !cluster.Copies(r.service.Name) {
		return false
	}
	r.copies = r.route.Copy == CopyExact
	if r.route.Copy == CopyOutage {
		r.age, r.copies = cluster.Outage()
	}
	return r.copies
}

// Copied reports whether the answer is looked for in the copy of a node that does not lead.
func (r *Request) Copied() bool { return r.copies }

// copyFirst answers from the copy of a node that does not lead. What is not in the copy is asked of
// the leader.
func copyFirst(s *Server, b *boundRoute, next Handler) Handler {
	if s.d.Cluster == nil {
		return next
	}
	return func(c *Request) error {
		if !c.copies {
			return next(c)
		}
		if c.route.Copy == CopyOutage {
			c.Set(AgeHeader, strconv.FormatFloat(c.age.Seconds(), 'f', 3, 64))
		}
		err := next(c)
		if err == nil || c.status != 0 || !isAbsent(b.service.classify(err).Status) {
			return err
		}
		c.dropHeaders()
		return s.forward(c)
	}
}

// isAbsent reports whether a node refuses with status because it lacks something. Other refusals
// are due to the request itself.
func isAbsent(status int) bool {
	return status == http.StatusNotFound || status == http.StatusGone || status >= http.StatusInternalServerError
}

// dropHeaders removes the headers of an answer that is not sent.
func (r *Request) dropHeaders() {
	h := r.Header()
	for name := range h {
		if !frameHeader(name) {
			delete(h, name)
		}
	}
}
