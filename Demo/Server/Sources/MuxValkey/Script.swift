import NIOCore

/// The atomic operations of the engine, as Lua scripts.
///
/// **Keys.** The first key is the entry (a hash), the second key the claim (a string: a nonce, a space and
/// the epochs). The other keys are the epochs of the scopes of the name (a string each). The next claim makes
/// each missing epoch, with a unique value. An invalidation therefore deletes an epoch, the loss of an epoch
/// in the engine invalidates its entries, and an entry or a claim is valid while its epochs are the current
/// epochs.
///
/// **Tenure.** The first epoch belongs to the engine. The tenure is replaced when a machine connects to
/// another run of an engine, or to another engine in its place, which may have lost confirmed changes.
/// Earlier entries are therefore never read, even if the slot or the role comes back to the first engine
/// later.
///
/// **Time** is the engine's time, in microseconds.
///
/// **Memory.** Engines check their limit before the first write of a script, and only for a command that
/// needs memory. `SETRANGE` is therefore the first write of `claim` and `put`. `begin` works on a full
/// engine.
///
/// **Numbers.** The last argument is the number of the call, and returns with the result.
enum Script: String, CaseIterable, Sendable {
    case begin, load, claim, put, giveUp, invalidate

    /// The text for a store with this limit; a larger payload in the engine is a miss.
    func text(maximumPayloadBytes: Int) -> ByteBuffer {
        ByteBuffer(
            string: """
                local largest = \(maximumPayloadBytes)
                \(Self.common)
                local function result()
                \(self.own)
                end
                local found = result()
                if type(found) == 'table' and found.err then return found end
                return {number, found}
                """
        )
    }

    private static let common = """
        local number = table.remove(ARGV)
        local function now()
            local t = redis.call('TIME')
            return t[1] * 1000000 + t[2]
        end
        -- A write that changes nothing: a replica, which may not have everything yet, refuses it.
        local function primary(tenure) redis.call('PERSIST', tenure) end
        -- Whether the engine is full: a full engine refuses this write, which changes nothing.
        local function isFull(tenure)
            local reply = redis.pcall('SETRANGE', tenure, 0, '')
            return type(reply) == 'table' and string.find(reply.err, 'OOM command')
        end
        local function full() return redis.error_reply('OOM the engine has no memory left') end
        local function text(number) return string.format('%.0f', number) end
        local function get(key)
            local value = redis.pcall('GET', key)
            if type(value) == 'string' then return value end
            return nil
        end
        local function epochs(new, milliseconds, engine)
            local all = {}
            for i = 3, #KEYS do
                local epoch = get(KEYS[i])
                if not epoch then
                    if not new then return nil end
                    -- Each its own: what belongs to one does not belong to another.
                    epoch = new .. ':' .. i
                    if i == 3 then
                        epoch = engine .. ':' .. new
                        redis.call('SET', KEYS[i], epoch)
                    else
                        redis.call('SET', KEYS[i], epoch, 'PX', milliseconds + 3600000)
                    end
                end
                all[#all + 1] = epoch
            end
            return table.concat(all, ' ')
        end
        -- Epochs outlive their entries by up to an hour.
        local function renew(milliseconds)
            for i = 4, #KEYS do
                if redis.call('PTTL', KEYS[i]) < milliseconds then redis.call('PEXPIRE', KEYS[i], milliseconds + 3600000) end
            end
        end
        local function entry(present)
            local f = redis.pcall('HMGET', KEYS[1], 'epochs', 'fetched', 'ttl', 'digest', 'schema', 'validator', 'swr', 'sie', 'payload')
            if f.err or f[1] ~= present or not tonumber(f[2]) or not tonumber(f[3]) or not tonumber(f[5]) then return nil end
            if not (f[4] and f[6] and f[7] and f[8] and f[9]) or #f[9] > largest then return nil end
            return f
        end
        local function age(f) return math.max(now() - f[2], 0) end
        local function told(f, digest)
            local payload = f[9]
            if f[4] == digest then payload = false end
            return {text(age(f)), f[3], f[4], f[5], f[6], f[7], f[8], payload}
        end
        local function standing()
            local claim = get(KEYS[2])
            if not claim then return nil end
            return string.match(claim, '^(%S+) (.*)$')
        end
        -- A claim ends with its holder's connection; without the permission for this question, with its time.
        local function isHeld(nonce, channels)
            local count = redis.pcall('PUBSUB', 'NUMSUB', channels .. string.match(nonce, '^[^.]*'))
            return count.err or count[2] > 0
        end

        """

    private var own: String {
        switch self {
        // The key is the tenure. Arguments: 1 the identity of the engine, 2 a nonce.
        case .begin:
            """
            primary(KEYS[1])
            local tenure = get(KEYS[1])
            if tenure and string.sub(tenure, 1, #ARGV[1] + 1) == ARGV[1] .. ':' then return 0 end
            redis.call('SET', KEYS[1], ARGV[1] .. ':' .. ARGV[2])
            return 1
            """
        case .load:
            """
            primary(KEYS[3])
            local present = epochs()
            local found = present and entry(present)
            return found and told(found) or false
            """
        // Arguments: 1 the nonce, 2 the claim's milliseconds, 3 the maximum age, 4 the known digest, 5 the
        // channels of connections, 6 the identity of the engine.
        case .claim:
            """
            local isFull = isFull(KEYS[3])
            primary(KEYS[3])
            -- A full engine still finds a present entry.
            local present = epochs(not isFull and ARGV[1], ARGV[2], ARGV[6])
            local found = present and entry(present)
            if found and age(found) < math.min(tonumber(ARGV[3]), tonumber(found[3])) then
                return {'entry', told(found, ARGV[4])}
            end
            local older = found and told(found, ARGV[4]) or false
            local nonce, of = standing()
            if nonce and of == present and isHeld(nonce, ARGV[5]) then
                return {'taken', redis.call('PTTL', KEYS[2]), older}
            end
            if isFull then return full() end
            renew(tonumber(ARGV[2]))
            redis.call('SET', KEYS[2], ARGV[1] .. ' ' .. present, 'PX', ARGV[2])
            return {'granted', older}
            """
        // Arguments: 1 the nonce, 2 the age, 3 to 8 the facts, 9 the entry's milliseconds, 10 the channel, 11
        // 'stored', 12 'released', 13 the payload.
        case .put:
            """
            local nonce, of = standing()
            if nonce ~= ARGV[1] then return 0 end
            if isFull(KEYS[3]) then return full() end
            -- Last: the holder gives up a claim whose put is refused.
            local function finish(message)
                redis.call('DEL', KEYS[2])
                redis.call('PUBLISH', ARGV[10], message)
            end
            if of ~= epochs() then
                finish(ARGV[12])
                return 0
            end
            renew(tonumber(ARGV[9]))
            if ARGV[13] then
                redis.call('DEL', KEYS[1])
                redis.call('HSET', KEYS[1], 'payload', ARGV[13])
            else
                local found = entry(of)
                if not found or found[4] ~= ARGV[4] then
                    finish(ARGV[12])
                    return 0
                end
            end
            redis.call('HSET', KEYS[1], 'epochs', of, 'fetched', text(now() - ARGV[2]), 'ttl', ARGV[3], 'digest', ARGV[4],
                'schema', ARGV[5], 'validator', ARGV[6], 'swr', ARGV[7], 'sie', ARGV[8])
            redis.call('PEXPIRE', KEYS[1], ARGV[9])
            finish(ARGV[11])
            return 1
            """
        // Arguments: 1 the nonce, 2 the channel, 3 'released'.
        case .giveUp:
            """
            if standing() ~= ARGV[1] then return 0 end
            redis.call('DEL', KEYS[2])
            redis.call('PUBLISH', ARGV[2], ARGV[3])
            return 1
            """
        // Arguments: 1 the channel, the others the messages.
        case .invalidate:
            """
            for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end
            for i = 2, #ARGV do redis.call('PUBLISH', ARGV[1], ARGV[i]) end
            return 1
            """
        }
    }
}
