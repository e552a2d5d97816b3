package host

import (
	"context"
	"net"
)

// PortFree says nil if the node could listen at addr, by doing so for a moment.
func PortFree(ctx context.Context, addr string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// ReadSoMaxConn is how many connections the kernel lets wait for accept, at most.
func ReadSoMaxConn() (int64, error) { return here().number("proc/sys/net/core/somaxconn") }
