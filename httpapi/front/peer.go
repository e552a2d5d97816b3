package front

import (
	"context"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Peer is the sender of a request.
type Peer struct {
	Addr   netip.Addr // of the client; the zero Addr over the socket, and where a proxy does not name it clearly
	Socket bool       // over the admin socket, as UID and GID
	UID    uint32
	GID    uint32

	conn *conn // nil in tests
}

// Serves names the service of the next answer to p: a write of it that does not end in time is counted there.
func (p *Peer) Serves(service string) {
	if p.conn != nil {
		p.conn.service = service
	}
}

// String is for logs.
func (p *Peer) String() string {
	switch {
	case p.Socket:
		return "uid:" + strconv.FormatUint(uint64(p.UID), 10)
	case p.Addr.IsValid():
		return p.Addr.String()
	}
	return ""
}

type peerKey struct{}

// nobody is the peer of a request that came over no listener of ours, as in a test.
var nobody = &Peer{}

// PeerOf returns the sender of r: the other end of the connection, or the client that this end names if it is a trusted
// proxy. It is never nil, and not to be changed.
func PeerOf(r *http.Request) *Peer {
	p := connPeer(r)
	if p.conn == nil || p.Socket || !p.conn.e.f.networks.Load().trusts(p.Addr) {
		return p
	}
	addr, named := forwarded(r.Header, p.conn.e.f.networks.Load().trusts)
	if !named {
		return p // the proxy asks for itself
	}
	return &Peer{Addr: addr, conn: p.conn}
}

// connPeer returns the other end of the connection.
func connPeer(r *http.Request) *Peer {
	if p, ok := r.Context().Value(peerKey{}).(*Peer); ok {
		return p
	}
	return nobody
}

// WithPeer gives the requests of ctx a peer, as the listeners do.
func WithPeer(ctx context.Context, p *Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// forwarded returns the client that a trusted proxy names: of the addresses in X-Forwarded-For or Forwarded the one
// furthest to the right that is no trusted proxy itself, since all to its left is only its own word. named is false when
// neither header is there. An unreadable address, and two headers that disagree, give the zero Addr, which no list allows
// anything: a client can send both headers, and must not choose between them.
func forwarded(h http.Header, trusted func(netip.Addr) bool) (client netip.Addr, named bool) {
	list, std := h["X-Forwarded-For"], h["Forwarded"]
	switch {
	case len(list) == 0 && len(std) == 0:
		return netip.Addr{}, false
	case len(std) == 0:
		return lastOfList(list, trusted), true
	case len(list) == 0:
		return rightmost(parseForwarded(std), trusted), true
	}
	a, b := lastOfList(list, trusted), rightmost(parseForwarded(std), trusted)
	if a != b {
		return netip.Addr{}, true
	}
	return a, true
}

// rightmost returns the last address that is not trusted, or the first of all when each is.
func rightmost(hops []string, trusted func(netip.Addr) bool) (at netip.Addr) {
	for i := len(hops) - 1; i >= 0; i-- {
		if at = parseHop(hops[i]); !at.IsValid() || !trusted(at) {
			return at
		}
	}
	return at
}

// lastOfList returns the rightmost of the lines of X-Forwarded-For, which every request behind a proxy has: nothing is split.
func lastOfList(lines []string, trusted func(netip.Addr) bool) (at netip.Addr) {
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			var hop string
			if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
				rest, hop = rest[:comma], rest[comma+1:]
			} else {
				hop, more = rest, false
			}
			if at = parseHop(strings.Trim(hop, " \t")); !at.IsValid() || !trusted(at) {
				return at
			}
		}
	}
	return at
}

// hiddenPort is a port that a proxy obfuscates (RFC 7239).
var hiddenPort = regexp.MustCompile("^[0-9A-Za-z._-]+$")

// parseHop reads an address, with or without a port. It returns the zero Addr for anything else, such as "unknown".
func parseHop(s string) netip.Addr {
	if host, port, hidden := strings.Cut(s, ":_"); hidden && hiddenPort.MatchString(port) {
		ap, _ := netip.ParseAddrPort(host + ":0")
		return ap.Addr().Unmap().WithZone("")
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")); err == nil {
		if strings.HasPrefix(s, "[") != strings.HasSuffix(s, "]") {
			return netip.Addr{}
		}
		return a.Unmap().WithZone("")
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// parseForwarded returns the value of "for" of each element of the Forwarded lines (RFC 7239), "" where it has none or
// more than one. An empty element is none. A line that breaks the syntax gives one "" for the rest of it.
func parseForwarded(lines []string) []string {
	var out []string
	for _, line := range lines {
		for rest, more := line, true; more; {
			var hop string
			var some bool
			if hop, rest, some, more = element(rest); some {
				out = append(out, hop)
			}
		}
	}
	return out
}

// element reads the parameters up to the next comma outside quotes. some reports whether there are any.
func element(s string) (hop, rest string, some, more bool) {
	for seen := 0; ; {
		s = strings.TrimLeft(s, " \t")
		switch {
		case s == "":
			return hop, "", some, false
		case s[0] == ',':
			return hop, s[1:], some, true
		case s[0] == ';':
			s = s[1:]
			continue
		}
		name, value, tail, ok := parameter(s)
		s, some = strings.TrimLeft(tail, " \t"), true
		if !ok || s != "" && s[0] != ',' && s[0] != ';' {
			return "", "", true, false
		}
		if strings.EqualFold(name, "for") {
			hop, seen = value, seen+1
		}
		if seen > 1 {
			hop = ""
		}
	}
}

// parameter reads name=value, where value is a token or quoted, and not empty unless it is quoted.
func parameter(s string) (name, value, rest string, ok bool) {
	name, s, ok = strings.Cut(s, "=")
	if !ok || !token.MatchString(name) {
		return "", "", "", false
	}
	if quoted, isQuoted := strings.CutPrefix(s, `"`); isQuoted {
		value, rest, ok = unquote(quoted)
		return name, value, rest, ok
	}
	end := strings.IndexAny(s, " \t,;")
	if end < 0 {
		end = len(s)
	}
	return name, s[:end], s[end:], end > 0
}

// unquote reads up to the closing quote.
func unquote(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
