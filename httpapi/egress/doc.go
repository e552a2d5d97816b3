// Package egress writes the answers of a connection to its socket: with few system calls, and for
// as long as the client takes them.
//
// # Invariants
//
//  1. Bytes reach the socket in the order in which they were written. After an error nothing more
//     is written.
//  2. A write that the socket accepts at once is one system call. A deadline is set, and the kernel
//     is asked how much the client has taken, only if the socket is full.
//  3. With a window, a client that takes 64 KiB in each window gets the whole answer. If a client
//     stalls for a window, the write fails with os.ErrDeadlineExceeded.
//  4. The first part of an answer is held for at most 20 ms, and only if the answer announces its
//     length and is not complete.
//  5. The kernel sends files. Their own offset is neither used nor changed if they are sent by an
//     io.SectionReader, so several answers may share one.
//
// # Tasks and queues
//
// None. A timer writes the part that is held; the next write waits for it.
//
// # Lock order
//
// The turn of a Sender, then the lock of Records, which is a leaf.
package egress
