// A worker that holds the lease of /reports/may and writes a line to it every second, through the gateway.
//
//	go run worker.go OWNER LINES
//
// Exit codes: 0 all lines are written, 75 another worker has the lease, 76 the lease is lost or the gateway
// refused the token for good, 1 anything else. Go 1.19 or later, standard library only; Linux, for
// CLOCK_BOOTTIME.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	resource = "/reports/may"
	tries    = 5
)

var (
	leases  = setting("LEASES", "http://127.0.0.1:8081")
	gateway = setting("GATEWAY", "http://127.0.0.1:8080")
	ttl     = millis("TTL_MS", 10_000)
	pause   = millis("PAUSE_MS", 1000)
	client  = &http.Client{
		Timeout: time.Minute,
		// What the API redirects is for the caller to see, not to be sent elsewhere with the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
)

// ended says that the work is over, with this exit code.
type ended struct {
	code int
	why  string
}

func (e ended) Error() string { return e.why }

// now is the time on a clock that goes on while the machine is suspended. That of the package time does not.
func now() time.Duration {
	const clockBoottime = 7
	var at syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&at)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(at.Nano())
}

// answer is one that was read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func exchange(client *http.Client, method, url string, body []byte, header http.Header) (answer, error) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	request.Header = header
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, read}, err
}

// lease is taken, and renewed every third of its time until it is released or lost.
type lease struct {
	owner, url string
	// A string: it has up to 19 digits, and is passed on as it is.
	token    string
	lock     sync.Mutex
	deadline time.Duration
	over     chan struct{}
	end      sync.Once
}

type granted struct {
	Token string `json:"token"`
	TTLms int64  `json:"ttl_ms"`
}

func take(owner string) (*lease, error) {
	// One segment: the slashes of the resource are encoded as well.
	l := &lease{owner: owner, url: leases + "/v1/leases/" + url.PathEscape(resource), over: make(chan struct{})}
	asked := now()
	wanted := fmt.Sprintf(`{"owner":%q,"ttl_ms":%d}`, owner, ttl.Milliseconds())
	answer, err := exchange(client, "POST", l.url, []byte(wanted), nil)
	if err != nil {
		return nil, err
	}
	switch answer.status {
	case http.StatusCreated:
	case http.StatusConflict:
		return nil, ended{75, "another worker has the lease of " + resource}
	default:
		return nil, fmt.Errorf("no lease: %d %s", answer.status, answer.body)
	}
	var given granted
	if err := json.Unmarshal(answer.body, &given); err != nil {
		return nil, err
	}
	l.token = given.Token
	l.confirmed(asked, given)
	go l.renew()
	return l, nil
}

func (l *lease) confirmed(asked time.Duration, given granted) {
	l.lock.Lock()
	defer l.lock.Unlock()
	// From before the request was sent: the gateway's own deadline is never earlier than this one.
	l.deadline = asked + time.Duration(given.TTLms)*time.Millisecond
}

func (l *lease) left() time.Duration {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.deadline - now()
}

// isLive says whether there is time left to write. It keeps work from being in vain; the gateway is the fence.
func (l *lease) isLive() bool {
	select {
	case <-l.over:
		return false
	default:
		return l.left() > ttl/5
	}
}

func (l *lease) isOver() { l.end.Do(func() { close(l.over) }) }

func (l *lease) renew() {
	body := []byte(fmt.Sprintf(`{"owner":%q,"token":%q,"ttl_ms":%d}`, l.owner, l.token, ttl.Milliseconds()))
	impatient := &http.Client{Timeout: ttl / 3}
	wait := ttl / 3
	for {
		select {
		case <-l.over:
			return
		case <-time.After(wait):
		}
		asked := now()
		answer, err := exchange(impatient, "POST", l.url+"/renew", body, nil)
		var given granted
		switch {
		case err == nil && answer.status == http.StatusOK && json.Unmarshal(answer.body, &given) == nil:
			l.confirmed(asked, given)
			wait = ttl / 3
		case err == nil && answer.status < 500, l.left() < 0:
			l.isOver()
		default:
			wait = ttl / 20
		}
	}
}

func (l *lease) release() {
	l.isOver()
	query := url.Values{"owner": {l.owner}, "token": {l.token}}
	// If it does not arrive, the lease ends by itself when its time is over.
	_, _ = exchange(client, "DELETE", l.url+"?"+query.Encode(), nil, nil)
}

type problem struct{ Code, Detail, Outcome string }

// refusal is the gateway's own answer, or nil if it is the API's.
func refusal(a answer) *problem {
	var p problem
	if a.status < 400 || a.header.Get("Content-Type") != "application/problem+json" {
		return nil
	}
	if json.Unmarshal(a.body, &p) != nil || p.Outcome == "" {
		return nil
	}
	return &p
}

// write writes once; it sends again only what certainly did not happen.
func write(l *lease, line string) error {
	why := ""
	for try := 0; try < tries; try++ {
		if !l.isLive() {
			return ended{76, "the lease is lost"}
		}
		header := http.Header{"Fencing-Token": {l.token}, "Content-Type": {"text/plain"}}
		answer, err := exchange(client, "PUT", gateway+resource, []byte(line), header)
		if err != nil {
			return fmt.Errorf("no answer, it may have happened: %w", err)
		}
		p := refusal(answer)
		if p == nil {
			if answer.status >= 300 {
				return fmt.Errorf("the API answered %d", answer.status)
			}
			return nil
		}
		why = p.Code + ": " + p.Detail
		switch {
		case answer.status == http.StatusForbidden, answer.status == http.StatusPreconditionFailed:
			return ended{76, why} // Another worker has taken over: final, whatever is tried.
		case p.Outcome != "not_forwarded":
			return fmt.Errorf("it may have happened, look at the API first: %s", why)
		case answer.header.Get("x-should-retry") == "false":
			return fmt.Errorf("%s", why)
		}
		seconds, err := strconv.Atoi(answer.header.Get("Retry-After"))
		if err != nil {
			seconds = 1
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
	return fmt.Errorf("gave up after %d tries: %s", tries, why)
}

func work(owner string, lines int) error {
	l, err := take(owner)
	if err != nil {
		return err
	}
	defer l.release()
	fmt.Printf("%s has the lease, with token %s\n", owner, l.token)
	for line := 1; line <= lines; line++ {
		if err := write(l, fmt.Sprintf("line %d of %s\n", line, owner)); err != nil {
			return err
		}
		fmt.Printf("wrote line %d\n", line)
		time.Sleep(pause)
	}
	return nil
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: worker OWNER LINES")
		os.Exit(64)
	}
	lines, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = work(os.Args[1], lines)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stopped:", err)
		if e, ok := err.(ended); ok {
			os.Exit(e.code)
		}
		os.Exit(1)
	}
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return strings.TrimSuffix(value, "/")
	}
	return otherwise
}

func millis(name string, otherwise int) time.Duration {
	value, err := strconv.Atoi(setting(name, strconv.Itoa(otherwise)))
	if err != nil {
		panic(err)
	}
	return time.Duration(value) * time.Millisecond
}
