package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/peer"
	"ronbox/store"
)

// Cluster is the raft node, as the handlers use it.
type Cluster interface {
	Leads() bool
	Leader() (id, addr string, ok bool)
	IsMember(id string) bool
	// Members returns the addresses of the peer ports of all members.
	Members() []string
	// Unfit returns why this node should not lead, "" if it may.
	Unfit() string
	// Address returns the address of the peer port of a member, "" for another node.
	Address(id string) string
	// Standby reports whether a member stays without a vote.
	Standby(id string) bool
	Admit(ctx context.Context, id, addr string, standby bool) error
	// Remove returns ErrQuorum if the healthy voters that remain are no quorum.
	Remove(ctx context.Context, id string) error
	// Heard records the word of another node.
	Heard(id string, w Word)
	// HeardClock records a reading of the clock of another node.
	HeardClock(id string, c Clock)
	// Clocks returns the clocks of other members against that of this node.
	Clocks() map[string]Clock
}

// Shot is a verified snapshot of the file, with its membership. The handler calls Remove once.
type Shot struct {
	Path   string
	Size   int64
	B3     b3.Digest
	Remove func() error
}

// Deps are the dependencies of a Server.
type Deps struct {
	Identity *peer.Identity
	Store    *store.Store
	Cluster  Cluster
	Bundle   func() (Bundle, error) // NodeKey and LogKey
	Keys     func() KeyDigests      // nil while this node does not serve as the leader
	Shot     func(context.Context) (*Shot, error)
	URL      func() string // of the public port of this node
	URLs     func() map[string]string
	Now      func() time.Time
	// Note appends an audit row about a change that this node has made as the leader.
	Note func(ctx context.Context, event string, detail map[string]string)
	Log  hclog.Logger
}

// Server answers the requests of other nodes on the peer port.
type Server struct {
	d     Deps
	keys  keyWatch
	dates dateWatch
}

// NewServer returns a server.
func NewServer(d Deps) *Server { return &Server{d: d} }

// Join returns the handler for connections without a client certificate. It knows POST /join.
func (s *Server) Join() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathJoin, s.handle(s.join))
	return mux
}

// Register adds the handlers for connections of nodes to mux: POST /hello, POST /stand, POST
// /rejoin, GET /bundle and GET /file.
func (s *Server) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+PathHello, s.handle(s.hello))
	mux.HandleFunc("POST "+PathStand, s.handle(s.stand))
	mux.HandleFunc("POST "+PathRejoin, s.handle(s.rejoin))
	mux.HandleFunc("GET "+PathBundle, s.handle(s.bundle))
	mux.HandleFunc("GET "+PathFile, s.file)
}

// handle returns a handler that answers with the JSON of what fn returns.
func (s *Server) handle(fn func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		out, err := fn(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		respond(w, http.StatusOK, out)
	}
}

func respond(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		status, text = http.StatusInternalServerError, nil
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // the node may have gone
}

// fail answers with a RemoteError and logs why.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e, status := s.remote(err)
	s.d.Log.Warn("peer_request_failed",
		"path", r.URL.Path, "peer", peer.PeerID(r), "code", e.Code, "error", err.Error())
	respond(w, status, e)
}

// remote converts an error to the one that the other node gets, and a status.
func (s *Server) remote(err error) (*RemoteError, int) {
	e, ok := errors.AsType[*RemoteError](err)
	switch {
	case ok && e.Code == CodeNotMember:
		return e, http.StatusForbidden
	case ok:
		return e, http.StatusBadRequest
	case errors.Is(err, store.ErrNotLeader):
		_, addr, _ := s.d.Cluster.Leader()
		return &RemoteError{Code: CodeNotLeader, Detail: "this node does not lead", Leader: addr},
			http.StatusServiceUnavailable
	case errors.Is(err, ErrToken):
		return &RemoteError{Code: CodeToken, Detail: err.Error()}, http.StatusForbidden
	case errors.Is(err, ErrManyTokens):
		return &RemoteError{Code: CodeMany, Detail: err.Error()}, http.StatusTooManyRequests
	case errors.Is(err, ErrQuorum):
		return &RemoteError{Code: CodeConflict, Detail: err.Error()}, http.StatusConflict
	case errors.Is(err, peer.ErrRefused):
		return &RemoteError{Code: CodeRefused, Detail: err.Error()}, http.StatusConflict
	case errors.Is(err, store.ErrBusy), errors.Is(err, store.ErrTimeout):
		return &RemoteError{Code: CodeBusy, Detail: err.Error()}, http.StatusServiceUnavailable
	}
	return &RemoteError{Code: CodeInternal, Detail: err.Error()}, http.StatusInternalServerError
}

// readBody decodes the JSON body of a request.
func readBody[B any](r *http.Request) (b B, err error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err == nil && len(text) > maxBody {
		err = fmt.Errorf("more than %d bytes", maxBody)
	}
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		return b, &RemoteError{Code: CodeRequest, Detail: "body: " + err.Error()}
	}
	return b, nil
}

// lead returns [store.ErrNotLeader] on a node that does not lead.
func (s *Server) lead() error {
	if !s.d.Cluster.Leads() {
		return store.ErrNotLeader
	}
	return nil
}

// waiting returns the row of a node that was issued a certificate and is not admitted yet.
func (s *Server) waiting(ctx context.Context, server string) (row issueRow, ok bool, err error) {
	err = s.d.Store.View(ctx, func(r store.Reader) error {
		row, ok = issued(r, server, s.d.Now().UnixNano())
		return nil
	})
	return row, ok, err
}

// notMember is the error for a node that is not a member and was not issued a certificate lately.
func notMember(server string) error {
	return &RemoteError{Code: CodeNotMember, Detail: "node " + server + " is not a member and was not issued a " +
		"certificate within a day; join with a new token"}
}

// hello serves POST /hello. A node that joins is admitted.
func (s *Server) hello(r *http.Request) (any, error) {
	q, err := readBody[Hello](r)
	if err != nil {
		return nil, err
	}
	server, got := peer.PeerID(r), s.d.Now()
	if err := peer.ThisProgram(store.Schema).Judge(q.Versions); err != nil {
		return nil, err
	}
	if err := s.lead(); err != nil {
		return nil, err
	}
	row, waits, err := s.waiting(r.Context(), server)
	if err != nil {
		return nil, err
	}
	if !waits && !s.d.Cluster.IsMember(server) {
		return nil, notMember(server)
	}
	keys := s.d.Keys()
	answer := HelloAnswer{
		Versions: peer.ThisProgram(store.Schema), Server: s.d.Identity.ServerID(), URL: s.d.URL(), Keys: keys,
	}
	if q.Echo == 0 {
		answer.Clock = s.d.Now().UnixNano()
		return answer, nil
	}
	word := Word{URL: q.URL, Unfit: q.Unfit}
	if q.Ends != 0 {
		word.Ends = time.Unix(q.Ends, 0)
	}
	s.d.Cluster.Heard(server, word)
	if skew := peer.SkewOf(q.Clock, time.Unix(0, q.Echo), got); skew.Counts() {
		s.d.Cluster.HeardClock(server, Clock{Ahead: int64(skew.By)})
	}
	s.compareKeys(server, q.Keys, keys)
	s.noteRotated(r.Context(), server, word.Ends)
	if q.Join && waits {
		if err := s.admit(r, server, q, row.Standby); err != nil {
			return nil, err
		}
	}
	answer.Unreached = s.move(r, server, q.Advertise)
	answer.Members, answer.Clocks = s.d.Cluster.Members(), s.d.Cluster.Clocks()
	answer.URLs = s.d.URLs()
	return answer, nil
}

// stand serves POST /stand to members. It asks no other node.
func (s *Server) stand(r *http.Request) (any, error) {
	if id := peer.PeerID(r); !s.d.Cluster.IsMember(id) {
		return nil, notMember(id)
	}
	leader, _, _ := s.d.Cluster.Leader()
	return Stand{
		Unfit: s.d.Cluster.Unfit(), Applied: s.d.Store.Applied().Index, Clock: s.d.Now().UnixNano(),
		Leader: leader, URL: s.d.URL(),
	}, nil
}

// admit makes a node a member, and then removes its row.
func (s *Server) admit(r *http.Request, server string, q Hello, standby bool) error {
	if err := peer.CheckAddress(q.Advertise); err != nil {
		return &RemoteError{Code: CodeRequest, Detail: "advertise: " + err.Error()}
	}
	if !s.d.Cluster.IsMember(server) { // another one may have got the address since the join
		if err := s.reaches(r, q.Advertise); err != nil {
			return err
		}
	}
	if err := s.d.Cluster.Admit(r.Context(), server, q.Advertise, standby); err != nil {
		return err
	}
	_, err := store.Commit(r.Context(), s.d.Store, store.Control, admitted{
		Server: server, Note: store.Event{Event: "cluster.admitted", Decision: "allow", Principal: q.Advertise},
	})
	return err
}

// bundle serves GET /bundle to a node whose certificate was just issued.
func (s *Server) bundle(r *http.Request) (any, error) {
	if err := s.lead(); err != nil {
		return nil, err
	}
	server := peer.PeerID(r)
	row, waits, err := s.waiting(r.Context(), server)
	if err != nil {
		return nil, err
	}
	if !waits {
		return nil, notMember(server)
	}
	if s.d.Identity.Authority() == nil {
		return nil, peer.ErrNoAuthority
	}
	b, err := s.d.Bundle()
	if err != nil {
		return nil, err
	}
	if b.CAKey, err = s.d.Identity.Authority().KeyPEM(); err != nil {
		return nil, err
	}
	b.Members, b.Standby = s.d.Cluster.Members(), row.Standby
	s.d.Log.Warn("bundle_sent", "peer", server)
	return b, nil
}

// file serves GET /file: a verified snapshot of the file of the leader.
func (s *Server) file(w http.ResponseWriter, r *http.Request) {
	shot, err := s.shoot(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	err = s.sendFile(w, shot)
	if err = errors.Join(err, shot.Remove()); err != nil {
		s.d.Log.Warn("file_not_sent", "peer", peer.PeerID(r), "error", err.Error())
	}
}

func (s *Server) shoot(r *http.Request) (*Shot, error) {
	if err := s.lead(); err != nil {
		return nil, err
	}
	server := peer.PeerID(r)
	_, waits, err := s.waiting(r.Context(), server)
	if err != nil {
		return nil, err
	}
	if !waits && !s.d.Cluster.IsMember(server) {
		return nil, notMember(server)
	}
	return s.d.Shot(r.Context())
}

// sendIdle bounds the time for which a node may take no byte of a file.
const sendIdle = time.Minute

func (s *Server) sendFile(w http.ResponseWriter, shot *Shot) (err error) {
	f, err := os.Open(shot.Path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(shot.Size, 10))
	w.Header().Set(headerB3, shot.B3.String())
	conn := http.NewResponseController(w)
	for sent := int64(0); sent < shot.Size; {
		_ = conn.SetWriteDeadline(time.Now().Add(sendIdle)) // not supported by test recorders
		n, err := io.CopyN(w, f, min(1<<20, shot.Size-sent))
		if sent += n; err != nil {
			return err
		}
	}
	return conn.SetWriteDeadline(time.Time{})
}
