// Command late relays TCP connections to an address, and delays what either side sends, for edge.sh: a host that is far away. Usage: late TARGET ROUNDTRIP. It prints
// its own address.
package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

// piece is what one side has sent, and when the other gets it.
type piece struct {
	bytes []byte
	at    time.Time
}

func main() {
	trip, err := time.ParseDuration(os.Args[2])
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		near, err := l.Accept()
		if err != nil {
			panic(err)
		}
		go func() {
			time.Sleep(trip) // of the handshake of TCP
			far, err := net.Dial("tcp", os.Args[1])
			if err != nil {
				_ = near.Close()
				return
			}
			go relay(far, near, trip/2)
			relay(near, far, trip/2)
		}()
	}
}

// relay copies from one connection to the other, and closes both at the end.
func relay(to, from net.Conn, delay time.Duration) {
	pieces := make(chan piece, 1<<12)
	go func() {
		defer close(pieces)
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			pieces <- piece{b[:n], time.Now().Add(delay)}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.at))
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	_, _ = to.Close(), from.Close()
	for range pieces { // until the reader has ended
	}
}
