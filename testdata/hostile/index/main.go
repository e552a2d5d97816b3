// Command index floods a node's lookups from one loopback network while an honest client on another asks for little,
// and prints how the honest client fares. It starts a node and three peers of the given binary in a temporary folder,
// talks to loopback alone, and ends by itself after about a minute.
//
// Usage: go run ./testdata/hostile/index [-seconds 8] [-connections 200] path/to/ronbox
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of a run, and of the acceptance.
const (
	peers        = 3
	known        = 1200 // contents that every peer serves
	honestEvery  = 50 * time.Millisecond
	ownReaders   = 4
	leastMisses  = 0.95 // of honest lookups among the peers that must succeed
	leastOwn     = 0.5  // of the quiet rate of reads of own names
	wholeRun     = 3 * time.Minute
	startsWithin = 20 * time.Second
)

func main() {
	seconds := flag.Int("seconds", 8, "length of each phase, 1 to 30")
	connections := flag.Int("connections", 200, "connections of the flood, 1 to 250")
	latency := flag.Duration("latency", 150*time.Millisecond, "time that each answer of a peer takes more, as of a node far away; 0 to 1s")
	flag.Parse()
	if flag.NArg() != 1 || *seconds < 1 || *seconds > 30 || *connections < 1 || *connections > 250 || *latency < 0 || *latency > time.Second {
		flag.Usage()
		os.Exit(2)
	}
	s := &site{binary: flag.Arg(0), latency: *latency}
	ok, err := s.run(time.Duration(*seconds)*time.Second, *connections)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(3)
	}
}

// run measures a quiet phase and a flooded one.
func (s *site) run(length time.Duration, connections int) (ok bool, err error) {
	var cancel func()
	s.ctx, cancel = context.WithTimeout(context.Background(), wholeRun)
	defer cancel()
	if s.dir, err = os.MkdirTemp("", "index-flood"); err != nil {
		return false, err
	}
	defer s.close()
	if err := s.start(); err != nil {
		return false, err
	}
	quiet := s.measure(length, 0)
	fmt.Println("quiet:  ", quiet)
	flooded := s.measure(length, connections)
	fmt.Println("flooded:", flooded)
	fmt.Print(s.breakers())
	misses := float64(flooded.found) / float64(max(flooded.missed, 1))
	own := flooded.own / max(quiet.own, 1)
	fmt.Printf("honest lookups %.1f %% (want %.0f), own names %.2f of quiet (want %.1f)\n", 100*misses, 100*leastMisses, own, leastOwn)
	return misses >= leastMisses && own >= leastOwn, nil
}

// site is the nodes of one run.
type site struct {
	ctx     context.Context
	binary  string
	latency time.Duration
	dir     string
	nodes   []*exec.Cmd
	far     []*http.Server // the peers, as far away as latency says
	url     string         // of the node that is flooded
	cids    []string       // that peers serve
	next    atomic.Int64
}

// start starts the peers, publishes at them, and then starts the node that asks them.
func (s *site) start() error {
	for range known {
		s.cids = append(s.cids, randomCID())
	}
	var urls []string
	for i := range peers {
		at, err := s.node(fmt.Sprint("peer", i), nil)
		if err != nil {
			return err
		}
		if at, err = s.away(at); err != nil {
			return err
		}
		urls = append(urls, at+"#eu")
		if err := s.announce(fmt.Sprint("peer", i)); err != nil {
			return err
		}
	}
	at, err := s.node("node", []string{"RONBOX_INDEX__PEERS=" + strings.Join(urls, ",")})
	if err != nil {
		return err
	}
	s.url = at
	return s.verb("node", nil, "index", "put", "-q", "name:own.example", randomCID())
}

// node starts a node and returns its URL.
func (s *site) node(name string, env []string) (string, error) {
	if err := s.verb(name, nil, "init", "--dev", "-q"); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(s.ctx, s.binary, "--data-dir", filepath.Join(s.dir, name), "serve")
	cmd.Env = append(append(os.Environ(), "RONBOX_SERVER__BIND=127.0.0.1:0", "RONBOX_LOG__LEVEL=off"), env...)
	if err := cmd.Start(); err != nil {
		return "", err
	}
	s.nodes = append(s.nodes, cmd)
	for end := time.Now().Add(startsWithin); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		out, err := exec.CommandContext(s.ctx, s.binary, "--data-dir", filepath.Join(s.dir, name), "status", "--json").Output()
		if m := regexp.MustCompile(`"url":"([^"]+)"`).FindSubmatch(out); err == nil && m != nil {
			return string(m[1]), nil
		}
	}
	return "", errors.New(name + " does not start")
}

// away returns the URL of a proxy that passes each answer of a peer on after the latency.
func (s *site) away(peer string) (string, error) {
	to, err := url.Parse(peer)
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(s.latency):
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}), ReadHeaderTimeout: time.Minute}
	s.far = append(s.far, srv)
	go func() { _ = srv.Serve(l) }()
	return "http://" + l.Addr().String(), nil
}

// announce has a peer serve all contents.
func (s *site) announce(name string) error {
	var lines bytes.Buffer
	for _, cid := range s.cids {
		fmt.Fprintln(&lines, cid)
	}
	return s.verb(name, &lines, "index", "announce", "-q", "-f", "-", "--addr", "/ip4/192.0.2.1/tcp/443/https")
}

// verb runs a command on a node.
func (s *site) verb(name string, in io.Reader, args ...string) error {
	cmd := exec.CommandContext(s.ctx, s.binary, append([]string{"--data-dir", filepath.Join(s.dir, name)}, args...)...)
	cmd.Stdin = in
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %v: %w: %s", name, args, err, out)
	}
	return nil
}

// breakers is what the flooded node thinks of its peers.
func (s *site) breakers() string {
	out, _ := exec.CommandContext(s.ctx, s.binary, "--data-dir", filepath.Join(s.dir, "node"), "index", "peers").Output()
	return string(out)
}

// close ends the nodes that this run has started.
func (s *site) close() {
	for _, n := range s.nodes {
		_ = n.Process.Signal(syscall.SIGTERM)
	}
	for _, n := range s.nodes {
		_ = n.Wait()
	}
	for _, srv := range s.far {
		_ = srv.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// figures are those of one phase.
type figures struct {
	missed, found int           // honest lookups among the peers, and those of them that were answered 200
	slowest       time.Duration // of them
	own           float64       // reads of an own name a second
	flood         map[string]int64
}

func (f figures) String() string {
	return fmt.Sprintf("%d of %d honest lookups found, the slowest after %v; %.0f own names/s; flood %v",
		f.found, f.missed, f.slowest.Round(time.Millisecond), f.own, f.flood)
}

// measure asks honestly for a while, beside a flood of some connections.
func (s *site) measure(length time.Duration, connections int) figures {
	ctx, cancel := context.WithTimeout(s.ctx, length)
	defer cancel()
	out := figures{flood: map[string]int64{}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	flood, honest := client("127.0.0.2", connections), client("127.0.0.1", ownReaders+1)
	defer flood.CloseIdleConnections()
	defer honest.CloseIdleConnections()
	for range connections {
		wg.Go(func() {
			for ctx.Err() == nil {
				status := ask(ctx, flood, s.url+"/providers/"+randomCID())
				mu.Lock()
				out.flood[status]++
				mu.Unlock()
			}
		})
	}
	var owned atomic.Int64
	for range ownReaders {
		wg.Go(func() {
			for ctx.Err() == nil {
				if ask(ctx, honest, s.url+"/resolve/name:own.example") == "200" {
					owned.Add(1)
				}
			}
		})
	}
	wg.Go(func() {
		tick := time.NewTicker(honestEvery)
		defer tick.Stop()
		for at := s.next.Add(1); ctx.Err() == nil && int(at) < len(s.cids); at = s.next.Add(1) {
			begun := time.Now()
			status := ask(s.ctx, honest, s.url+"/providers/"+s.cids[at])
			out.slowest = max(out.slowest, time.Since(begun))
			if out.missed++; status == "200" {
				out.found++
			}
			<-tick.C
		}
	})
	wg.Wait()
	out.own = float64(owned.Load()) / length.Seconds()
	return out
}

// client speaks from one address.
func client(from string, connections int) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: connections + 1, DisableCompression: true,
	}}
}

// ask makes one request and returns its status, "error" without one.
func ask(ctx context.Context, c *http.Client, url string) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "error"
	}
	resp, err := c.Do(req)
	if err != nil {
		return "error"
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return fmt.Sprint(resp.StatusCode)
}

func randomCID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return "b3:" + hex.EncodeToString(b[:])
}
