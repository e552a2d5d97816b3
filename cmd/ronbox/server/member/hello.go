package member

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi"
	"ronbox/store"
)

const (
	helloWithin   = 5 * time.Second
	helloEvery    = 10 // ticks, once the leader has answered
	resolveWithin = time.Second
)

// runHello says hello to the leader: often until it has answered, then now and then, and at once
// when the fitness of this node changes, its wall clock steps, or it has a new certificate. It also
// corrects the wall clock by what the members agree on, and renews the certificate by that clock.
func (m *Member) runHello(ctx context.Context) error {
	defer m.tick.Stop()
	heard, wait := "", 0 // the leader that has answered, and the ticks until the next hello
	var told news
	for {
		leader, _, _ := m.raft.Leader()
		m.keepMedian()
		m.keepCertificate(ctx)
		if leader == m.id.ServerID() {
			m.savePeers(m.raft.Members()) // not only with a hello: it may lose its file before
		}
		now := news{m.raft.Unfit(), m.d.Clock.Status().Steps, m.id.NotAfter()}
		if wait--; wait < 0 || leader != heard || now != told {
			heard, told, wait = "", now, 0
			m.expect(ctx)
			if m.hello(ctx, leader) {
				heard, wait = leader, helloEvery
			}
		}
		m.noteElection(ctx)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.tick.C():
		}
	}
}

// keepMedian corrects the wall clock by what the members agree on. What the clock of a standby has
// believed before counts no more.
func (m *Member) keepMedian() {
	origin, known := m.raft.Median()
	if !known {
		return
	}
	if first := m.d.Median.Swap(&origin) == nil; first && m.d.Node.StandsBy() {
		m.d.Clock.Begin(time.Unix(0, m.store.Info().At))
	}
}

// Compare implements clusterMember of package server. A member that was elected before it has heard
// of others must not stamp by a clock that they know to be wrong.
func (m *Member) Compare(ctx context.Context) {
	if m.d.Median.Load() != nil {
		return
	}
	m.raft.AskClocks(ctx, m.d.Machine)
	m.keepMedian()
}

// noteElection appends an audit row once this node serves as the leader.
func (m *Member) noteElection(ctx context.Context) {
	if m.noted || !(answering{m}).Leads() {
		return
	}
	m.noted = true
	term := m.raft.Status(ctx).Term
	m.note(ctx, "cluster.elected", map[string]string{"term": strconv.FormatUint(term, 10)})
}

// news holds the state of this node that the leader must hear of at once.
type news struct {
	unfit string
	steps clock.Steps
	ends  time.Time // of its certificate
}

// hello says hello, and reports whether the leader has heard it.
func (m *Member) hello(ctx context.Context, leader string) bool {
	if leader == m.id.ServerID() {
		m.readmit(ctx)
		m.raft.Heard(leader, member.Word{URL: m.url()})
		m.keepURLs(m.urls())
		return m.raft.Leads()
	}
	ctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	addrs := m.known()
	answer, err := member.SayHello(ctx, m.client, addrs, m.d.Machine, member.Hello{
		Versions:  peer.ThisProgram(store.Schema),
		Advertise: m.id.Advertise(),
		URL:       m.url(),
		Join:      m.joining != nil,
		Keys:      m.keys(),
		Unfit:     m.raft.Unfit(),
		Ends:      m.id.NotAfter().Unix(),
	})
	if errors.Is(err, member.ErrToken) {
		m.removed.Store(m.joining == nil)
		m.log.Warn("not_a_member", "reason", err.Error(),
			"next", "`ronbox cluster rejoin --wipe` with a URL and a token")
		return true // heard, and refused
	}
	if e, ok := errors.AsType[*member.RemoteError](err); ok && e.Code == member.CodeRequest {
		m.log.Warn("hello_refused", "reason", err.Error(),
			"next", "`ronbox cluster rejoin --wipe` with --advertise, a URL and a token")
		return true
	}
	if err != nil {
		m.log.Debug("hello_unanswered", "members", strings.Join(addrs, " "), "reason", err.Error())
		return false
	}
	m.raft.Heard(answer.Server, member.Word{URL: answer.URL})
	m.compareClocks(answer)
	m.tellReached(answer.Unreached)
	m.removed.Store(false)
	m.compareKeys(answer.Keys)
	m.admitted()
	m.savePeers(answer.Members)
	m.keepURLs(answer.URLs)
	return true
}

// readmit changes the address of this leader to its own if that has changed.
func (m *Member) readmit(ctx context.Context) {
	id, now := m.id.ServerID(), m.id.Advertise()
	was := m.raft.Address(id)
	if was == now || !(answering{m}).Leads() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	if err := m.raft.Admit(ctx, id, now, false); err != nil {
		m.tellReached(err.Error())
		return
	}
	m.tellReached("")
	m.note(ctx, "cluster.address", map[string]string{"server": id, "from": was, "to": now})
}

// tellReached keeps why this node is not reached at its address, and logs a change.
func (m *Member) tellReached(why string) {
	if was := *m.unreached.Swap(&why); was == why {
		return
	}
	if why == "" {
		m.log.Info("address_reached", "addr", m.id.Advertise())
		return
	}
	m.log.Warn("address_unreached", "addr", m.id.Advertise(), "reason", why, "next", addressAdvice)
}

// note appends an audit row about a change that the leader has made by itself.
func (m *Member) note(ctx context.Context, event string, detail map[string]string) {
	m.d.Node.Note(ctx, tokens.AuditEvent(event, tokens.Self("cluster"), "", detail))
}

// compareClocks records the clock of the leader and those of the members that it has heard.
func (m *Member) compareClocks(answer member.Greeting) {
	if !answer.Skew.Counts() {
		return
	}
	m.raft.HeardClock(answer.Server, member.Clock{Ahead: int64(answer.Skew.By)})
	for id, c := range answer.Clocks {
		if id != m.id.ServerID() && id != answer.Server {
			m.raft.HeardClock(id, member.Clock{Ahead: int64(answer.Skew.By) + c.Ahead, Age: c.Age})
		}
	}
}

// expect lets the peer port know where members come from, which strangers must not keep out.
func (m *Member) expect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	m.port.Know(ctx, m.known())
}

// known returns the addresses to try, that of the leader first.
func (m *Member) known() (addrs []string) {
	if _, addr, ok := m.raft.Leader(); ok {
		addrs = append(addrs, addr)
	}
	addrs = append(addrs, m.raft.Members()...)
	if m.joining != nil {
		addrs = append(addrs, m.joining.Members...)
	}
	was := m.raft.Address(m.id.ServerID())
	own := func(addr string) bool { return addr == m.id.Advertise() || addr == was }
	return slices.DeleteFunc(addrs, own)
}

// admitted ends the join of this node.
func (m *Member) admitted() {
	if m.joining == nil {
		return
	}
	if err := m.dir.Admitted(); err != nil {
		m.log.Warn("join_not_ended", "reason", err.Error(), "next", "the next hello tries again")
		return
	}
	m.joining = nil
	m.log.Info("admitted")
}

// keys returns the digests of the secrets that all members share. If a file cannot be read, its
// secret counts as missing.
func (m *Member) keys() member.KeyDigests {
	b, _ := m.bundle()
	return member.DigestKeys(m.id.ClusterID(), b)
}

// servingKeys returns the digests of a leader that serves: its node key is that of the tokens. It
// returns nil on other nodes.
func (m *Member) servingKeys() member.KeyDigests {
	if !(answering{m}).Leads() {
		return nil
	}
	return m.keys()
}

// compareKeys compares the secrets of this node with those of the leader, and logs each change of
// the result. The digests of the leader remain for differing.
func (m *Member) compareKeys(leader member.KeyDigests) {
	if leader == nil {
		return
	}
	m.keysOf.Store(&leader)
	differ := m.differing()
	if differ == m.told {
		return
	}
	m.told = differ
	if differ == "" {
		m.log.Info("keys_agree")
		return
	}
	m.log.Warn("keys_differ", "files", differ, "effect", keysEffect, "next", keysAdvice)
}

const (
	keysEffect = "with another " + config.SecretName + " it cannot lead, with another log.key it signs no checkpoints"
	keysAdvice = "copy these files from the leader"
)

// differing returns the file names of the secrets that are not those of the last leader, or "" if
// this node leads. It reads the files, so that a node whose files were corrected may lead without
// another hello.
func (m *Member) differing() string {
	leader := m.keysOf.Load()
	if leader == nil || m.leads() {
		return ""
	}
	return m.keys().Differ(*leader)
}

// savePeers keeps the addresses of the members beside the file, for a node that has lost it.
func (m *Member) savePeers(addrs []string) {
	text := strings.Join(addrs, " ")
	if text == m.saved {
		return
	}
	if err := m.dir.SavePeers(addrs); err != nil {
		m.log.Warn("peers_not_saved", "reason", err.Error())
		return
	}
	m.saved = text
}

// url returns the URL at which clients reach this node.
func (m *Member) url() string { return publicURL(m.front.URL(), m.id.Advertise()) }

// publicURL returns the URL of a public port. If that listens at all addresses of the machine, its
// host is that of advertise, at which other members reach the node.
func publicURL(bound, advertise string) string {
	at, err := url.Parse(bound)
	if err != nil || !net.ParseIP(at.Hostname()).IsUnspecified() {
		return bound
	}
	host, _, err := net.SplitHostPort(advertise)
	if err != nil {
		return bound
	}
	at.Host = net.JoinHostPort(host, at.Port())
	return at.String()
}

// maxURL bounds the URL of a member that is kept, bytes.
const maxURL = 256

// urls returns the URLs of the public ports of the members, by id, as far as they are known.
func (m *Member) urls() map[string]string {
	out, kept := map[string]string{}, m.kept.Load().(map[string]string)
	for _, one := range m.raft.Status(context.Background()).Members {
		if at := cmp.Or(one.URL, kept[one.ID]); at != "" && len(at) <= maxURL {
			out[one.ID] = at
		}
	}
	return out
}

// keepURLs keeps the URLs of members beside the file, for a node that knows no leader.
func (m *Member) keepURLs(urls map[string]string) {
	if urls == nil || maps.Equal(urls, m.kept.Load().(map[string]string)) {
		return
	}
	if err := m.dir.SaveURLs(urls); err != nil {
		m.log.Warn("urls_not_saved", "reason", err.Error())
		return
	}
	m.kept.Store(urls)
}

// Answering returns the cluster as the HTTP frame sees it.
func (m *Member) Answering() httpapi.Cluster { return answering{m} }

// answering is the cluster as the HTTP frame sees it.
type answering struct{ m *Member }

// Self implements httpapi.Cluster.
func (a answering) Self() string { return a.m.id.ServerID() }

// Leads implements httpapi.Cluster.
func (a answering) Leads() bool {
	return a.m.d.Node.Serves() && a.m.started.Load() && a.m.raft.Leads()
}

// Leader implements httpapi.Cluster.
func (a answering) Leader() (id, addr string, ok bool) {
	if !a.m.started.Load() {
		return "", "", false
	}
	return a.m.raft.Leader()
}

// Copies implements httpapi.Cluster.
func (a answering) Copies(service string) bool { return a.m.d.Node.Copies(service) }

// Outage implements httpapi.Cluster. A node that has heard no leader in this life tells the age of
// the last command in its file instead, which is not less.
func (a answering) Outage() (age time.Duration, ok bool) {
	silent, heard, ok := a.m.raft.Outage()
	if !ok || !a.m.d.Config().Cluster.OutageReads {
		return 0, false
	}
	if !heard {
		silent = max(silent, a.m.d.Clock.Now().Sub(time.Unix(0, a.m.store.Info().At)))
	}
	return silent, true
}

// LeaderURL implements httpapi.Cluster.
func (a answering) LeaderURL() string {
	id, _, known := a.Leader()
	if !known || id == a.Self() {
		return ""
	}
	at := cmp.Or(a.m.raft.URL(id), a.m.kept.Load().(map[string]string)[id])
	if len(at) > maxURL {
		return ""
	}
	return at
}

// Removed implements httpapi.Cluster.
func (a answering) Removed() bool { return a.m.removed.Load() }

// Confirm implements httpapi.Cluster.
func (a answering) Confirm(ctx context.Context) error { return a.m.raft.Confirm(ctx) }

// Peer implements httpapi.Cluster.
func (a answering) Peer() http.RoundTripper { return a.m.client.Transport }
