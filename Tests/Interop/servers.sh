# Sourced by the scripts in this folder: starts third-party servers on free ports of the loopback address. Skips
# unavailable servers with a message. All processes and files are removed at the end of the script, except Python
# environments and a downloaded nginx, which are kept for later runs.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
kept="$top/.build/interop"
work=$(mktemp -d)
mkdir -p "$kept"
pids=()
filters=()

stop() {
    local pid
    for pid in "${pids[@]:-}"; do
        [ -n "$pid" ] || continue
        kill "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Waits until the file $1 contains the text $3, or any text. Fails after a minute, or if the process $2 ends first.
wait_for() {
    for _ in $(seq 1 600); do
        [ -s "$1" ] && grep -q "${3:-}" "$1" && return 0
        kill -0 "$2" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Finds or creates a Python environment with a server: sets `python`.
find_python() {  # name, folder, module, packages
    local name=$1 folder="$kept/$2" module=$3 system
    shift 3
    python="$folder/bin/python"
    "$python" -c "import $module" 2>/dev/null && return 0
    system=$(command -v python3) || { echo "interop: skipped $name: no python3"; return 1; }
    rm -rf "$folder"
    "$system" -m venv "$folder" >"$work/pip.log" 2>&1 || {
        echo "interop: skipped $name: python3 cannot create an environment (Debian: apt-get install python3-venv)"
        return 1
    }
    "$python" -m pip install --quiet --disable-pip-version-check "$@" >"$work/pip.log" 2>&1 || {
        echo "interop: skipped $name: pip could not install it: $(tail -n 1 "$work/pip.log")"
        return 1
    }
}

# An authorization server with rotation and reuse protection.
start_oauth() {
    find_python django-oauth-toolkit venv oauth2_provider 'django-oauth-toolkit>=3,<4' 'Django>=5.2,<5.3' || return 0
    INTEROP_DATABASE="$work/oauth.sqlite" PYTHONDONTWRITEBYTECODE=1 "$python" "$here/oauth/serve.py" \
        >"$work/oauth.url" 2>"$work/oauth.log" &
    pids+=($!)
    wait_for "$work/oauth.url" $! || {
        echo "interop: django-oauth-toolkit did not start"
        tail -n 5 "$work/oauth.log"
        exit 1
    }
    MUX_INTEROP_OAUTH=$(head -n 1 "$work/oauth.url")
    export MUX_INTEROP_OAUTH
    filters+=(--filter OAuthInteropTests)
}

# A server that returns its requests.
start_httpbin() {
    find_python httpbin httpbin 'httpbin, gunicorn' 'httpbin>=0.10,<0.11' 'gunicorn>=23,<24' || return 0
    (cd "$work" && exec "$python" -m gunicorn --config "$here/httpbin/gunicorn.conf.py" httpbin:app) \
        >"$work/httpbin.url" 2>"$work/httpbin.log" &
    pids+=($!)
    wait_for "$work/httpbin.url" $! || {
        echo "interop: httpbin did not start"
        tail -n 5 "$work/httpbin.log"
        exit 1
    }
    MUX_INTEROP_HTTPBIN=$(head -n 1 "$work/httpbin.url")
    export MUX_INTEROP_HTTPBIN
    filters+=(--filter HTTPBinInteropTests)
}

# Finds an installed nginx, or downloads and unpacks nginx: sets `nginx`.
find_nginx() {
    for nginx in "$(command -v nginx || true)" /usr/sbin/nginx "$kept/nginx/usr/sbin/nginx"; do
        [ -n "$nginx" ] && "$nginx" -v 2>/dev/null && return 0
    done
    if command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
        for package in nginx nginx-core nginx-light; do
            (
                cd "$work" || exit 1
                apt-get download "$package" || { apt-get update && apt-get download "$package"; } || exit 1
                rm -rf "$kept/nginx"
                dpkg -x "$package"_*.deb "$kept/nginx"
            ) >"$work/apt.log" 2>&1
            "$nginx" -v 2>/dev/null && return 0
        done
    fi
    echo "interop: skipped nginx: not installed (Debian: apt-get install nginx-light)"
    return 1
}

# A private authority with certificates: for this address, for another name, expired, and for a client; and a
# self-signed certificate.
make_certificates() {
    command -v openssl >/dev/null || { echo "interop: skipped TLS: no openssl (Debian: apt-get install openssl)"; return 1; }
    mkdir -p "$work/tls"
    (
        cd "$work/tls" || exit 1
        : >index.txt
        printf '[ca]\ndefault_ca=a\n[a]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\ndefault_md=sha256\npolicy=p\ncopy_extensions=copy\nunique_subject=no\n[p]\ncommonName=supplied\n' >ca.conf
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 30 -subj /CN=authority || exit 1
        openssl genrsa -out key.pem 2048 || exit 1
        certify() {  # name, subject alternative name, end
            openssl req -new -key key.pem -out "$1.csr" -subj "/CN=$1" -addext "subjectAltName=$2" &&
                openssl ca -batch -notext -config ca.conf -cert ca.pem -keyfile ca.key -in "$1.csr" -out "$1.pem" \
                    -startdate 20200101000000Z -enddate "$3"
        }
        certify good IP:127.0.0.1,DNS:localhost 20491231000000Z && certify wrong DNS:elsewhere.example 20491231000000Z &&
            certify expired IP:127.0.0.1 20200201000000Z && certify client DNS:client.example 20491231000000Z &&
            openssl rsa -aes256 -in key.pem -passout pass:secret -out locked.pem &&
            openssl pkcs12 -export -inkey key.pem -in client.pem -passout pass:secret -out client.p12 &&
            openssl req -x509 -key key.pem -out stranger.pem -days 30 -subj /CN=stranger
    ) >"$work/tls.log" 2>&1 || { echo "interop: skipped TLS: $(tail -n 1 "$work/tls.log")"; return 1; }
}

# A web server for the given suites.
start_nginx() {
    find_nginx || return 0
    mkdir -p "$work/www"
    printf '{"version":1}' >"$work/www/number.json"
    seq 1 20000 >"$work/www/long.txt"
    head -c 5000000 /dev/urandom >"$work/www/film.mp4"
    local user="" port suite tls="#"
    if make_certificates; then tls=""; fi
    [ "$(id -u)" != 0 ] || user="user root;"
    # nginx does not accept port 0: random ports are tried until nginx starts.
    for _ in $(seq 1 20); do
        port=$((10000 + RANDOM % 1800 * 12))
        sed -e "s|@WORK@|$work|g" -e "s|@PORT@|$port|g" -e "s|@OTHER@|$((port + 1))|g" -e "s|@USER@|$user|g" \
            -e "s|@PROXY@|$((port + 2))|g" -e "s|@GOOD@|$((port + 3))|g" -e "s|@WRONG@|$((port + 4))|g" \
            -e "s|@EXPIRED@|$((port + 5))|g" -e "s|@TLS@|$tls|g" \
            -e "s|@SHORT12@|$((port + 6))|g" -e "s|@SHORT12H2@|$((port + 7))|g" \
            -e "s|@SHORT13@|$((port + 8))|g" -e "s|@SHORT13H2@|$((port + 9))|g" \
            -e "s|@MUTUAL@|$((port + 10))|g" \
            "$here/nginx/nginx.conf" >"$work/nginx.conf"
        "$nginx" -p "$work" -c "$work/nginx.conf" >"$work/nginx.log" 2>&1 &
        if wait_for "$work/nginx.pid" $!; then
            pids+=($!)
            export MUX_INTEROP_NGINX="http://127.0.0.1:$port"
            export MUX_INTEROP_NGINX_OTHER="http://127.0.0.1:$((port + 1))"
            export MUX_INTEROP_NGINX_FOLDER="$work/www"
            export MUX_INTEROP_PROXY="http://127.0.0.1:$((port + 2))"
            if [ -z "$tls" ]; then
                export MUX_INTEROP_TLS="https://127.0.0.1:$((port + 3))"
                export MUX_INTEROP_TLS_WRONG="https://127.0.0.1:$((port + 4))"
                export MUX_INTEROP_TLS_EXPIRED="https://127.0.0.1:$((port + 5))"
                export MUX_INTEROP_AUTHORITY="$work/tls/ca.pem"
                export MUX_INTEROP_MUTUAL="https://127.0.0.1:$((port + 10))"
                start_mutual_tls $((port + 11))
                short_lived="nginx-12=https://127.0.0.1:$((port + 6)) nginx-12-h2=https://127.0.0.1:$((port + 7))"
                short_lived+=" nginx-13=https://127.0.0.1:$((port + 8)) nginx-13-h2=https://127.0.0.1:$((port + 9))"
            fi
            for suite in "$@"; do filters+=(--filter "$suite"); done
            return 0
        fi
        kill $! 2>/dev/null
        wait $! 2>/dev/null
    done
    echo "interop: nginx did not start"
    tail -n 5 "$work/nginx.log"
    exit 1
}

# Servers that end idle connections after a second, and a server that sends bytes on idle connections; after
# start_nginx.
start_wire() {
    [ -n "${short_lived:-}" ] || { echo "interop: skipped idle connections: no nginx with TLS"; return 0; }
    find_python 'uvicorn, hypercorn' wire 'uvicorn, hypercorn' 'uvicorn>=0.30,<1' 'hypercorn>=0.17,<1' || return 0
    PYTHONDONTWRITEBYTECODE=1 "$python" "$here/wire/serve.py" "$work/tls/good.pem" "$work/tls/key.pem" \
        >"$work/wire.urls" 2>"$work/wire.log" &
    pids+=($!)
    wait_for "$work/wire.urls" $! || {
        echo "interop: uvicorn and hypercorn did not start"
        tail -n 5 "$work/wire.log"
        exit 1
    }
    MUX_INTEROP_WIRE="$short_lived $(tr '\n' ' ' <"$work/wire.urls")"
    export MUX_INTEROP_WIRE
    filters+=(--filter WireInteropTests)
}

# A server of OpenSSL that requires a client certificate, and responds with its name; after make_certificates.
start_mutual_tls() {  # port
    openssl s_server -accept "127.0.0.1:$1" -cert "$work/tls/good.pem" -key "$work/tls/key.pem" -CAfile "$work/tls/ca.pem" \
        -Verify 1 -verify_return_error -www >"$work/mutual.log" 2>&1 </dev/null &
    pids+=($!)
    if wait_for "$work/mutual.log" $! ACCEPT; then export MUX_INTEROP_MUTUAL_OPENSSL="https://127.0.0.1:$1"; fi
}

# Runs the suites of the started servers; builds the tests if necessary.
run_suites() {
    [ "${#filters[@]}" -gt 0 ] || exit 0
    cd "$top" || exit 1
    swift test --disable-xctest "${filters[@]}" "$@"
}
