// Package lock takes the locks of database files and of their folders, and finds the process that
// holds one.
//
// # Invariants
//
//  1. A lock is an flock of the file itself, so that it ends with the process.
//  2. Holder takes no lock, so that it cannot interfere with a process that starts.
//  3. A folder that is created is synced in its parent.
//
// # Tasks and queues
//
// None. File waits for a lock for the time it is given, and 200 ms at least.
//
// # Lock order
//
// None in this process. Of files, the folder is locked before the database in it.
package lock
