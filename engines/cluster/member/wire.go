package member

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/peer"
)

// maxBody bounds the body of a request or of an answer, except a file.
const maxBody = 64 << 10

// Paths of the peer port.
const (
	PathJoin   = "/join"
	PathHello  = "/hello"
	PathStand  = "/stand"
	PathRejoin = "/rejoin"
	PathBundle = "/bundle"
	PathFile   = "/file"
)

// headerB3 carries the BLAKE3 hash of a file, in hex.
const headerB3 = "Ronbox-B3"

// joinRequest is the body of POST /join and, without Token, of POST /rejoin. Without Key
// it is only a question.
type joinRequest struct {
	peer.Versions
	Token     []byte `json:"token,omitempty"` // secret
	Key       []byte `json:"key,omitempty"`   // ed25519 public key of the node
	Advertise string `json:"advertise,omitempty"`
}

// joinAnswer is the answer to a joinRequest.
type joinAnswer struct {
	peer.Versions
	Cluster string `json:"cluster"`
	Clock   int64  `json:"clock"` // Unix ns
	Server  string `json:"server,omitempty"`
	Cert    string `json:"cert,omitempty"` // PEM
	CA      string `json:"ca,omitempty"`   // PEM
}

// Bundle holds the secrets that all members share. The handler of GET /bundle fills all members but
// the first two.
type Bundle struct {
	NodeKey []byte   `json:"node_key"`          // content of <data>/node.key
	LogKey  []byte   `json:"log_key,omitempty"` // content of the log key of the registry; nil: none
	CAKey   []byte   `json:"ca_key"`            // PEM
	Members []string `json:"members"`           // addresses of peer ports
	Standby bool     `json:"standby"`           // the node stays without a vote
}

// Code is a machine-readable reason of a failed request between nodes.
type Code string

// The codes.
const (
	CodeNotLeader Code = "not_leader" // ask Leader, or again later
	CodeToken     Code = "token"      // unknown, expired or used
	CodeMany      Code = "many"
	CodeRefused   Code = "refused" // the versions do not match
	CodeNotMember Code = "not_member"
	CodeConflict  Code = "conflict" // the healthy voters that remain would be no quorum
	CodeBusy      Code = "busy"     // ask again later
	CodeRequest   Code = "request"
	CodeInternal  Code = "internal"
)

// RemoteError is the failure of a request to another node.
type RemoteError struct {
	Code   Code   `json:"code"`
	Detail string `json:"detail"`
	Leader string `json:"leader,omitempty"` // address of the peer port of the leader, with CodeNotLeader
}

func (e *RemoteError) Error() string { return fmt.Sprintf("%.32s: %.512s", e.Code, e.Detail) }

// Is reports whether target is the sentinel of the code.
func (e *RemoteError) Is(target error) bool {
	return target == ErrToken && (e.Code == CodeToken || e.Code == CodeNotMember) ||
		target == ErrManyTokens && e.Code == CodeMany ||
		target == ErrQuorum && e.Code == CodeConflict ||
		target == peer.ErrRefused && e.Code == CodeRefused
}

// final reports whether asking again cannot help.
func final(err error) bool {
	e, ok := errors.AsType[*RemoteError](err)
	return ok && e.Code != CodeNotLeader && e.Code != CodeBusy && e.Code != CodeInternal ||
		errors.Is(err, peer.ErrRefused)
}

// call sends a request to one member and decodes the answer. It follows one answer CodeNotLeader to
// the leader.
func call[A any](ctx context.Context, c *http.Client, addr, path string, body any) (out A, err error) {
	for range 2 {
		out, err = callOne[A](ctx, c, addr, path, body)
		leader, ok := leaderIn(err)
		if !ok {
			break
		}
		addr = leader
	}
	return out, err
}

// leaderIn returns the address of the leader if err is an answer that names it.
func leaderIn(err error) (addr string, ok bool) {
	e, ok := errors.AsType[*RemoteError](err)
	if !ok || e.Code != CodeNotLeader || peer.CheckAddress(e.Leader) != nil {
		return "", false
	}
	return e.Leader, true
}

// askAny asks one member after the other until one answers or an error is final.
func askAny[A any](ctx context.Context, addrs []string, ask func(addr string) (A, error)) (out A, err error) {
	if len(addrs) == 0 {
		return out, errors.New("no address of a member is known; give a URL and a token")
	}
	for _, addr := range addrs {
		var bad error
		if out, bad = ask(addr); bad == nil {
			return out, nil
		}
		if final(bad) {
			return out, bad
		}
		if err = errors.Join(err, bad); ctx.Err() != nil {
			break
		}
	}
	return out, err
}

// callWithin bounds a call that sends no file.
const callWithin = 30 * time.Second

func callOne[A any](ctx context.Context, c *http.Client, addr, path string, body any) (out A, err error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	res, err := send(ctx, c, addr, path, body)
	if err != nil {
		return out, err
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err = errors.Join(err, res.Body.Close()); err == nil && len(text) > maxBody {
		err = fmt.Errorf("an answer of more than %d bytes", maxBody)
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, fmt.Errorf("%s%s: %w", addr, path, err)
	}
	return out, nil
}

// send sends a request and returns an answer of status 200. Without body it is a GET.
func send(ctx context.Context, c *http.Client, addr, path string, body any) (*http.Response, error) {
	method, text := http.MethodGet, []byte(nil)
	var err error
	if body != nil {
		method = http.MethodPost
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, "https://"+addr+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	res, err := c.Do(q)
	if err != nil || res.StatusCode == http.StatusOK {
		return res, err
	}
	e := new(RemoteError)
	text, err = io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err == nil && json.Unmarshal(text, e) != nil {
		e.Code, e.Detail = CodeInternal, res.Status
	}
	return nil, errors.Join(err, res.Body.Close(), e)
}
