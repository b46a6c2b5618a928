// A worker that knows nothing of Fencegate: it locks with etcd's own package.
//
// worker ENDPOINTS NAME TTL_SECONDS: waits for the lock, prints its key and create revision, holds it
// until standard input ends, unlocks, and prints "unlocked".
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"
	"strings"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func main() {
	ttl, err := strconv.Atoi(os.Args[3])
	check(err)
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	mutex := concurrency.NewMutex(session, os.Args[2])
	check(mutex.Lock(context.Background()))
	answer, err := client.Get(context.Background(), mutex.Key())
	check(err)
	fmt.Println(mutex.Key(), answer.Kvs[0].CreateRevision)
	io.Copy(io.Discard, os.Stdin)
	check(mutex.Unlock(context.Background()))
	fmt.Println("unlocked")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
