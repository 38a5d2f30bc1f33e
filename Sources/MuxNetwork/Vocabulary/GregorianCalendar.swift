/// The calendar that dates on the web are written in, also for times before it was introduced.
enum GregorianCalendar {
    private static func isLeap(_ year: Int) -> Bool { year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) }

    /// How many days a month has; months count from 1.
    static func days(ofMonth month: Int, in year: Int) -> Int {
        switch month {
        case 2: self.isLeap(year) ? 29 : 28
        case 4, 6, 9, 11: 30
        default: 31
        }
    }

    /// How many days a date is after 1 January 1970.
    static func daysSince1970(_ year: Int, _ month: Int, _ day: Int) -> Int {
        // Years begin in March here, so that the odd day is the last of a year.
        let march = year - (month <= 2 ? 1 : 0)
        let yearOfCycle = (march % 400 + 400) % 400
        let cycle = (march - yearOfCycle) / 400
        let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
        return cycle * 146_097 + yearOfCycle * 365 + yearOfCycle / 4 - yearOfCycle / 100 + dayOfYear - 719_468
    }
}
