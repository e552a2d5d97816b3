package console

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	"ronbox/httpapi/wire/node"
)

// Bounds of sessions and codes.
const (
	maxSessions = 64
	maxOwn      = 8 // sessions of one token or one user
	maxCodes    = 16
	maxSpent    = 64 // references of forms that a session remembers
	codeLife    = time.Minute
	idleLife    = 30 * time.Minute
	// MaxLife is the longest life of a session.
	MaxLife = 8 * time.Hour
)

var (
	// errFull is returned when a code cannot be made because too many are waiting to be used.
	errFull = errors.New("16 codes are waiting to be used; the oldest ends within a minute")
	errMany = notice("64 sessions are open. One ends half an hour after its last request.")
)

// rights holds the identity and the permissions of a session.
type rights struct {
	who   string // "token:" and its id, or "uid:" and the user's
	name  string // the subject of the token
	token string // the session acts with it; "": as the socket peer below
	uid   uint32
	gid   uint32
	write bool
	life  time.Duration

	scopes []string // of the token
}

// session is one browser that has entered.
type session struct {
	rights
	form  string // the value of the field `form` in its forms
	began time.Time
	seen  time.Time // the last request; guarded by sessions.mu
	from  string    // address of the browser that began it
	spent []string  // references of its forms that act once, the newest last; guarded by sessions.mu
}

// code is a one-time code that has not been used.
type code struct {
	rights
	ends time.Time
}

// sessions holds the sessions and codes of a node by the digest of their secrets, so that a lookup
// does not compare secrets.
type sessions struct {
	mu    *flow.Mutex
	open  map[b3.Digest]*session // guarded by mu
	codes map[b3.Digest]code     // guarded by mu
}

func newSessions(c *flow.Catalog) *sessions {
	return &sessions{
		mu:    flow.NewMutex(c, service, flow.RankCounters),
		open:  map[b3.Digest]*session{},
		codes: map[b3.Digest]code{},
	}
}

// secret returns 256 random bits as text.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// grant makes a code. It returns errFull if too many codes are alive.
func (s *sessions) grant(r rights, now time.Time) (text string, ends time.Time, err error) {
	text, ends = secret(), now.Add(codeLife)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	if len(s.codes) >= maxCodes {
		return "", time.Time{}, errFull
	}
	s.codes[b3.Sum([]byte(text))] = code{r, ends}
	return text, ends, nil
}

// redeem ends a code and returns its rights. It returns false if the code is unknown, used or too
// old.
func (s *sessions) redeem(text string, now time.Time) (rights, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	key := b3.Sum([]byte(text))
	c, ok := s.codes[key]
	delete(s.codes, key)
	return c.rights, ok
}

// begin opens a session under a new cookie. If its token or user has too many, the one of them that
// was idle longest ends. It returns errMany if too many sessions are open.
func (s *sessions) begin(r rights, from string, now time.Time) (cookie string, err error) {
	cookie = secret()
	n := &session{rights: r, form: secret(), began: now, seen: now, from: from}
	n.life = cmp.Or(min(n.life, MaxLife), MaxLife)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	s.makeRoom(r.who)
	if len(s.open) >= maxSessions {
		return "", errMany
	}
	s.open[b3.Sum([]byte(cookie))] = n
	return cookie, nil
}

// makeRoom ends the session of who that was idle longest, if who has the maximum number of
// sessions. The caller holds mu.
func (s *sessions) makeRoom(who string) {
	var oldest b3.Digest
	var since time.Time
	own := 0
	for key, one := range s.open {
		if one.who != who {
			continue
		}
		own++
		if since.IsZero() || one.seen.Before(since) {
			oldest, since = key, one.seen
		}
	}
	if own >= maxOwn {
		delete(s.open, oldest)
	}
}

// expire ends sessions that are too old or were idle too long. The caller holds mu.
func (s *sessions) expire(now time.Time) {
	for key, one := range s.open {
		if now.Sub(one.began) >= one.life || now.Sub(one.seen) >= idleLife {
			delete(s.open, key)
		}
	}
	for key, c := range s.codes {
		if !now.Before(c.ends) {
			delete(s.codes, key)
		}
	}
}

// find returns the session of a cookie, or nil. If used is set, it resets the session's idle time.
func (s *sessions) find(cookie string, now time.Time, used bool) *session {
	if cookie == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	one := s.open[b3.Sum([]byte(cookie))]
	if one != nil && used {
		one.seen = now
	}
	return one
}

// spend reports whether a session has not sent a form with this reference before.
func (s *sessions) spend(one *session, reference string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if reference == "" || slices.Contains(one.spent, reference) {
		return false
	}
	one.spent = append(one.spent[max(0, len(one.spent)+1-maxSpent):], reference)
	return true
}

// end closes the session of a cookie.
func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, b3.Sum([]byte(cookie)))
}

// endByID closes the session with an id as list returns it. It reports whether there was one.
func (s *sessions) endByID(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.open {
		if sessionID(key) == id {
			delete(s.open, key)
			return true
		}
	}
	return false
}

// list returns the open sessions, oldest first.
func (s *sessions) list(now time.Time) []node.Session {
	out := []node.Session{}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	for key, one := range s.open {
		row := node.Session{
			ID: sessionID(key), Kind: "code", Who: one.who, Name: one.name, Write: one.write, From: one.from,
			BeganAt: wire.Instant{Time: one.began}, SeenAt: wire.Instant{Time: one.seen},
			ExpiresAt: wire.Instant{Time: one.began.Add(one.life)},
		}
		if one.token != "" {
			row.Kind = "token"
		}
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b node.Session) int {
		return cmp.Or(a.BeganAt.Compare(b.BeganAt.Time), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// sessionID names a session without its secret.
func sessionID(key b3.Digest) string { return key.String()[3:15] }

// Sessions returns the open sessions, oldest first, as GET /admin/v1/sessions shows them.
func (h *Console) Sessions() []node.Session { return h.sessions.list(h.d.Now()) }

// EndSession ends the session with an id that Sessions returned. It reports whether there was one.
func (h *Console) EndSession(id string) bool { return h.sessions.endByID(id) }

// securely is the prefix of a cookie that a browser sends over TLS only.
const securely = "__Secure-"

// cookieName returns the name of the session cookie of a request. The name has the node's id,
// because a browser sends the cookies of a host to all its ports, and several nodes may run on one
// host. The name over TLS is another one, so that neither cookie hides the other.
func (h *Console) cookieName(c *httpapi.Request) (name string, secure bool) {
	name = "ronbox_console_" + h.d.Info().NodeID
	if scheme, _ := c.Origin(); scheme == "https" {
		return securely + name, true
	}
	return name, false
}

// sessionOf returns the session of a request, nil if it has none. A page that refreshes itself does
// not keep its session alive.
func (h *Console) sessionOf(c *httpapi.Request) (s *session, cookie string) {
	name, _ := h.cookieName(c)
	got, err := c.HTTP().Cookie(name)
	if err != nil {
		return nil, ""
	}
	live := c.HTTP().Header.Get("X-Console-Live") != ""
	return h.sessions.find(got.Value, h.d.Now(), !live), got.Value
}

// setCookie sets the session cookie of the browser. If value is "", it deletes the cookie.
func (h *Console) setCookie(c *httpapi.Request, value string) {
	name, secure := h.cookieName(c)
	k := &http.Cookie{
		Name: name, Value: value, Path: prefix, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
	if value == "" {
		k.MaxAge = -1
	}
	c.Header().Add("Set-Cookie", k.String())
}
