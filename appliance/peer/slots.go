package peer

import (
	"context"
	"net"
	"net/netip"
	"sync"
)

// slots bounds how many things are in use, in total and per key. It is safe for concurrent use.
type slots[K comparable] struct {
	most, mostEach int

	mu   sync.Mutex // a leaf
	used int        // guarded by mu
	each map[K]int  // guarded by mu
}

func newSlots[K comparable](most, mostEach int) *slots[K] {
	return &slots[K]{most: most, mostEach: mostEach, each: map[K]int{}}
}

// take takes a slot of key, unless reserve or fewer slots are free. The caller calls release once.
func (s *slots[K]) take(key K, reserve int) (release func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.most-reserve || s.each[key] >= s.mostEach {
		return nil, false
	}
	s.used++
	s.each[key]++
	return func() { s.free(key) }, true
}

func (s *slots[K]) free(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	s.each[key]--
	if s.each[key] == 0 {
		delete(s.each, key)
	}
}

// maxFamiliar bounds the networks that a familiar remembers.
const maxFamiliar = 64

// familiar remembers the networks of members. It is safe for concurrent use.
type familiar struct {
	mu   sync.Mutex              // a leaf
	nets map[netip.Addr]struct{} // guarded by mu
}

func (f *familiar) add(network netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.nets == nil || len(f.nets) >= maxFamiliar {
		f.nets = map[netip.Addr]struct{}{}
	}
	f.nets[network] = struct{}{}
}

func (f *familiar) has(network netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, known := f.nets[network]
	return known
}

// Know counts the networks of members as known before one has come from them. Each address is
// host:port; what does not resolve before ctx ends is skipped.
func (p *Port) Know(ctx context.Context, addrs []string) {
	for _, addr := range addrs {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			continue
		}
		ips, _ := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		for _, ip := range ips {
			p.known.add(networkAt(ip))
		}
	}
}

// networkOf returns the network of a client.
func networkOf(at net.Addr) netip.Addr {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return networkAt(tcp.AddrPort().Addr())
}

// networkAt returns the network of an address: the IPv4 address, or the first address of its IPv6
// /64.
func networkAt(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if p, err := a.Prefix(64); err == nil && a.Is6() {
		return p.Addr()
	}
	return a
}
