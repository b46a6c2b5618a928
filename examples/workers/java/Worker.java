import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * A worker that holds the lease of /reports/may and writes a line to it every second, through the gateway.
 *
 * <pre>java Worker.java OWNER LINES</pre>
 *
 * Exit codes: 0 all lines are written, 75 another worker has the lease, 76 the lease is lost or the gateway
 * refused the token for good, 1 anything else. Java 17 or later, no libraries; Linux, for /proc/uptime.
 */
public final class Worker {
    static final String LEASES = setting("LEASES", "http://127.0.0.1:8081");
    static final String GATEWAY = setting("GATEWAY", "http://127.0.0.1:8080");
    static final long TTL_MS = Long.parseLong(setting("TTL_MS", "10000"));
    static final long PAUSE_MS = Long.parseLong(setting("PAUSE_MS", "1000"));
    static final String RESOURCE = "/reports/may";
    static final int TRIES = 5;
    // HTTP/1.1 at once, without asking for an upgrade to HTTP/2 first.
    static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /** The work is over, with this exit code. */
    static final class Ended extends Exception {
        final int code;

        Ended(int code, String why) {
            super(why);
            this.code = code;
        }
    }

    /**
     * Milliseconds on a clock that goes on while the machine is suspended. Java has none: System.nanoTime()
     * stops then. The kernel shows one (CLOCK_BOOTTIME) in this file, to a hundredth of a second.
     */
    static long now() {
        try {
            String seconds = Files.readString(Path.of("/proc/uptime")).split(" ")[0];
            return Math.round(Double.parseDouble(seconds) * 1000);
        } catch (IOException error) {
            throw new IllegalStateException("without a clock there is no deadline", error);
        }
    }

    static HttpRequest.Builder request(String url, long timeoutMs) {
        return HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofMillis(timeoutMs));
    }

    /** A field of a flat JSON object, text or number. A real worker has a JSON library for this. */
    static String field(String json, String name) {
        var found = Pattern.compile("\"" + name + "\":\\s*(?:\"((?:[^\"\\\\]|\\\\.)*)\"|(\\d+))").matcher(json);
        if (!found.find()) {
            return null;
        }
        return found.group(1) != null ? found.group(1) : found.group(2);
    }

    /** Taken, and renewed every third of its time until it is released or lost. */
    static final class Lease implements AutoCloseable {
        final String owner;
        // One segment: the slashes of the resource are encoded as well.
        final String url = LEASES + "/v1/leases/" + escape(RESOURCE);
        // Text: it has up to 19 digits, and is passed on as it is.
        final String token;
        final CountDownLatch over = new CountDownLatch(1);
        volatile long deadline;

        Lease(String owner) throws Ended, IOException, InterruptedException {
            this.owner = owner;
            long asked = now();
            String wanted = "{\"owner\":\"" + owner + "\",\"ttl_ms\":" + TTL_MS + "}";
            HttpResponse<String> answer =
                HTTP.send(request(url, 60_000).POST(BodyPublishers.ofString(wanted)).build(), BodyHandlers.ofString());
            if (answer.statusCode() == 409) {
                throw new Ended(75, "another worker has the lease of " + RESOURCE);
            }
            if (answer.statusCode() != 201) {
                throw new Ended(1, "no lease: " + answer.statusCode() + " " + answer.body());
            }
            token = field(answer.body(), "token");
            confirmed(asked, answer.body());
            Thread renewal = new Thread(this::renew);
            renewal.setDaemon(true);
            renewal.start();
        }

        void confirmed(long asked, String lease) {
            // From before the request was sent: the gateway's own deadline is never earlier than this one.
            deadline = asked + Long.parseLong(field(lease, "ttl_ms"));
        }

        /** Whether there is time left to write. Keeps work from being in vain; the gateway is the fence. */
        boolean isLive() {
            return over.getCount() > 0 && now() < deadline - TTL_MS / 5;
        }

        void renew() {
            String body = "{\"owner\":\"" + owner + "\",\"token\":\"" + token + "\",\"ttl_ms\":" + TTL_MS + "}";
            long pause = TTL_MS / 3;
            try {
                while (!over.await(pause, TimeUnit.MILLISECONDS)) {
                    pause = TTL_MS / 20;
                    long asked = now();
                    try {
                        var renewal = request(url + "/renew", TTL_MS / 3).POST(BodyPublishers.ofString(body)).build();
                        HttpResponse<String> answer = HTTP.send(renewal, BodyHandlers.ofString());
                        if (answer.statusCode() == 200) {
                            confirmed(asked, answer.body());
                            pause = TTL_MS / 3;
                        } else if (answer.statusCode() < 500) {
                            over.countDown();
                        }
                    } catch (IOException unanswered) {
                        // Again, for as long as the lease may still be there.
                    }
                    if (now() > deadline) {
                        over.countDown();
                    }
                }
            } catch (InterruptedException ended) {
                over.countDown();
            }
        }

        @Override
        public void close() {
            over.countDown();
            String query = "?owner=" + escape(owner) + "&token=" + token;
            try {
                HTTP.send(request(url + query, 5000).DELETE().build(), BodyHandlers.discarding());
            } catch (IOException unanswered) {
                // It ends by itself when its time is over.
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    /** Whether an answer is the gateway's own, and not the API's. */
    static boolean isRefusal(HttpResponse<String> answer) {
        String type = answer.headers().firstValue("Content-Type").orElse("");
        return answer.statusCode() >= 400 && type.equals("application/problem+json")
            && field(answer.body(), "outcome") != null;
    }

    /** Writes once; sends again only what certainly did not happen. */
    static void write(Lease lease, String line) throws Ended, InterruptedException {
        String why = "";
        for (int attempt = 0; attempt < TRIES; attempt++) {
            if (!lease.isLive()) {
                throw new Ended(76, "the lease is lost");
            }
            HttpRequest put = request(GATEWAY + RESOURCE, 60_000)
                .header("Fencing-Token", lease.token)
                .header("Content-Type", "text/plain")
                .PUT(BodyPublishers.ofString(line))
                .build();
            HttpResponse<String> answer;
            try {
                answer = HTTP.send(put, BodyHandlers.ofString());
            } catch (IOException error) {
                throw new Ended(1, "no answer, it may have happened: " + error);
            }
            if (!isRefusal(answer)) {
                if (answer.statusCode() >= 300) {
                    throw new Ended(1, "the API answered " + answer.statusCode());
                }
                return;
            }
            why = field(answer.body(), "code") + ": " + field(answer.body(), "detail");
            if (answer.statusCode() == 403 || answer.statusCode() == 412) {
                throw new Ended(76, why); // Another worker has taken over: final, whatever is tried.
            }
            if (!field(answer.body(), "outcome").equals("not_forwarded")) {
                throw new Ended(1, "it may have happened, look at the API first: " + why);
            }
            if (answer.headers().firstValue("x-should-retry").orElse("").equals("false")) {
                throw new Ended(1, why);
            }
            Thread.sleep(1000 * Long.parseLong(answer.headers().firstValue("Retry-After").orElse("1")));
        }
        throw new Ended(1, "gave up after " + TRIES + " tries: " + why);
    }

    static void work(String owner, int lines) throws Ended, IOException, InterruptedException {
        try (Lease lease = new Lease(owner)) {
            System.out.println(owner + " has the lease, with token " + lease.token);
            for (int line = 1; line <= lines; line++) {
                write(lease, "line " + line + " of " + owner + "\n");
                System.out.println("wrote line " + line);
                Thread.sleep(PAUSE_MS);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        try {
            work(args[0], Integer.parseInt(args[1]));
        } catch (Ended ended) {
            System.err.println("stopped: " + ended.getMessage());
            System.exit(ended.code);
        }
    }

    static String setting(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }

    static String escape(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }
}
