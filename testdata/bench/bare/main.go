// Command bare serves the files of a folder with nothing but net/http, for edge.sh: what any Go program could do.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	panic(http.Serve(l, http.FileServer(http.Dir(os.Args[1]))))
}
